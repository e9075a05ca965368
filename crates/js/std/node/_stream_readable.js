import { Readable } from 'node:stream';

export const { from, fromWeb, toWeb } = Readable;
export default Readable;
