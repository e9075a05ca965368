import { CompressionStream, DecompressionStream } from 'internal/compression';
import * as streams from 'internal/streams';

export * from 'internal/streams';
export { CompressionStream, DecompressionStream };
export default { ...streams, CompressionStream, DecompressionStream };
