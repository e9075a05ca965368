import { strict } from 'node:assert';

export {
  AssertionError,
  deepStrictEqual as deepEqual,
  deepStrictEqual,
  doesNotMatch,
  doesNotReject,
  doesNotThrow,
  strictEqual as equal,
  fail,
  ifError,
  match,
  notDeepStrictEqual as notDeepEqual,
  notDeepStrictEqual,
  notStrictEqual as notEqual,
  notStrictEqual,
  ok,
  partialDeepStrictEqual,
  rejects,
  strict,
  strictEqual,
  throws,
} from 'node:assert';

export default strict;
