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
import { blobs } from 'internal/url';

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
export function resolveObjectURL(url) {
  const blob = blobs.get(`${url}`);
  return blob?.slice(0, blob.size, blob.type);
}

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
