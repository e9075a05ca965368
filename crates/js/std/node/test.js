import { after, afterEach, before, beforeEach, mock, register, suite, test } from 'internal/test';

export const assert = { register };
export { after, afterEach, before, beforeEach, mock, suite, test };
export { suite as describe, test as it };

Object.assign(test, { after, afterEach, before, beforeEach, describe: suite, it: test, mock, suite, test });

export default test;
