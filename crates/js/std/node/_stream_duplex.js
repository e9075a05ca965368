import { Duplex } from 'node:stream';

export const { from, fromWeb, toWeb } = Duplex;
export default Duplex;
