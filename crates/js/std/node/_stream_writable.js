import { Writable } from 'node:stream';

export const { fromWeb, toWeb } = Writable;
export default Writable;
