import {
  Buffer,
  SlowBuffer,
  atob,
  btoa,
  constants,
  isAscii,
  isUtf8,
  kMaxLength,
  kStringMaxLength,
  showing,
  transcode,
} from 'internal/buffer';
import { Blob, File } from 'internal/blob';

export {
  Blob,
  Buffer,
  File,
  SlowBuffer,
  atob,
  btoa,
  constants,
  isAscii,
  isUtf8,
  kMaxLength,
  kStringMaxLength,
  transcode,
};
/** How many bytes `inspect` shows; it is set on the module itself. */
export const { INSPECT_MAX_BYTES } = showing;
/** No URL of a Blob is made here. */
export const resolveObjectURL = () => undefined;

export default Object.defineProperty(
  {
    Blob,
    Buffer,
    File,
    SlowBuffer,
    atob,
    btoa,
    constants,
    isAscii,
    isUtf8,
    kMaxLength,
    kStringMaxLength,
    resolveObjectURL,
    transcode,
  },
  'INSPECT_MAX_BYTES',
  Object.getOwnPropertyDescriptor(showing, 'INSPECT_MAX_BYTES'),
);
