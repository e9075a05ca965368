export { PassThrough as default } from 'node:stream';
