import { absent } from 'internal/absent';

const instead = '`ostler plugin test` prints the results of tests';

export const dot = absent('reporters.dot', instead);
export const junit = absent('reporters.junit', instead);
export const lcov = absent('reporters.lcov', instead);
export const spec = absent('reporters.spec', instead);
export const tap = absent('reporters.tap', instead);

export default { dot, junit, lcov, spec, tap };
