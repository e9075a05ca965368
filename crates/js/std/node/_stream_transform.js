export { Transform as default } from 'node:stream';
