// What tests use of `node:assert/strict`. With `@types/node` installed and `"types": ["node"]` in tsconfig.json,
// TypeScript takes the declarations of that package instead.

type Message = string | Error;
type Expected = RegExp | Error | object | ((thrown: unknown) => boolean) | (new (...values: never[]) => object);

interface Assert {
    (value: unknown, message?: Message): asserts value;
    ok(value: unknown, message?: Message): asserts value;
    equal<T>(actual: unknown, expected: T, message?: Message): asserts actual is T;
    notEqual(actual: unknown, expected: unknown, message?: Message): void;
    strictEqual<T>(actual: unknown, expected: T, message?: Message): asserts actual is T;
    notStrictEqual(actual: unknown, expected: unknown, message?: Message): void;
    deepEqual<T>(actual: unknown, expected: T, message?: Message): asserts actual is T;
    notDeepEqual(actual: unknown, expected: unknown, message?: Message): void;
    deepStrictEqual<T>(actual: unknown, expected: T, message?: Message): asserts actual is T;
    notDeepStrictEqual(actual: unknown, expected: unknown, message?: Message): void;
    partialDeepStrictEqual(actual: unknown, expected: unknown, message?: Message): void;
    match(text: string, pattern: RegExp, message?: Message): void;
    doesNotMatch(text: string, pattern: RegExp, message?: Message): void;
    throws(run: () => unknown, expected?: Expected | string, message?: Message): void;
    doesNotThrow(run: () => unknown, message?: Message): void;
    rejects(run: Promise<unknown> | (() => Promise<unknown>), expected?: Expected | string, message?: Message): Promise<void>;
    doesNotReject(run: Promise<unknown> | (() => Promise<unknown>), message?: Message): Promise<void>;
    fail(message?: Message): never;
    ifError(value: unknown): asserts value is null | undefined;
}

declare const assert: Assert;
export default assert;
