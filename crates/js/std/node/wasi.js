import { absent } from 'internal/absent';

export const WASI = absent('wasi.WASI', 'run the program with node:child_process');

export default { WASI };
