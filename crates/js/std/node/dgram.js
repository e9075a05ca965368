import { absent } from 'internal/absent';

const instead = 'use TCP (node:net)';

export const Socket = absent('dgram.Socket', instead);
export const createSocket = absent('dgram.createSocket', instead);

export default { Socket, createSocket };
