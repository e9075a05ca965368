// What tests use of `node:test`. With `@types/node` installed and `"types": ["node"]` in tsconfig.json, TypeScript takes
// the declarations of that package instead.

export interface TestContext {
    name: string;
    diagnostic(message: string): void;
    skip(message?: string): void;
    todo(message?: string): void;
    /** A subtest. This test fails with it, and waits for it. */
    test: Declare<TestFunction>;
    /** The number of assertions of `assert` and of subtests; with `wait`, in milliseconds, they may come late. */
    plan(count: number, options?: { wait?: boolean | number }): void;
    /** The functions of `node:assert`, which `plan` counts. */
    assert: Record<string, (...values: any[]) => any>;
    /** Calls a function until it does not throw; fails after `timeout` milliseconds (1000). */
    waitFor<T>(condition: () => T | Promise<T>, options?: { interval?: number; timeout?: number }): Promise<T>;
    before(run: () => void | Promise<void>, options?: HookOptions): void;
    after(run: () => void | Promise<void>, options?: HookOptions): void;
    beforeEach(run: (context: TestContext) => void | Promise<void>, options?: HookOptions): void;
    afterEach(run: (context: TestContext) => void | Promise<void>, options?: HookOptions): void;
    signal: AbortSignal;
    fullName: string;
    /** What this test replaces; it is restored when the test ends. */
    mock: MockTracker;
}

export interface TestOptions {
    skip?: boolean | string;
    todo?: boolean | string;
    only?: boolean;
    /** Milliseconds. `ostler plugin check` gives a test without a limit 30,000; `Infinity` is none. */
    timeout?: number;
}

export interface HookOptions {
    /** As that of a test. */
    timeout?: number;
}

type TestFunction = (context: TestContext, done: (error?: unknown) => void) => void | Promise<void>;
type Hook = (run: () => void | Promise<void>, options?: HookOptions) => void;

interface Declare<F> {
    (name: string, run?: F): Promise<void>;
    (name: string, options: TestOptions, run?: F): Promise<void>;
    (run: F): Promise<void>;
}

interface Test extends Declare<TestFunction> {
    skip: Declare<TestFunction>;
    todo: Declare<TestFunction>;
    only: Declare<TestFunction>;
}

interface Suite extends Declare<() => void> {
    skip: Declare<() => void>;
    todo: Declare<() => void>;
    only: Declare<() => void>;
}

type Callable = (...values: any[]) => any;

export interface Call<F extends Callable> {
    arguments: Parameters<F>;
    result: ReturnType<F> | undefined;
    error: unknown;
    this: unknown;
}

export type Mock<F extends Callable> = F & {
    mock: {
        calls: Call<F>[];
        callCount(): number;
        resetCalls(): void;
        mockImplementation(implementation: F): void;
        mockImplementationOnce(implementation: F, onCall?: number): void;
        restore(): void;
    };
};

/** Timers and dates that move only when a test says so. */
export interface MockTimers {
    enable(options?: {
        apis?: ("setTimeout" | "setInterval" | "setImmediate" | "Date" | "scheduler.wait" | "AbortSignal.timeout")[];
        now?: number | Date;
    }): void;
    tick(milliseconds?: number): void;
    runAll(): void;
    setTime(milliseconds: number): void;
    reset(): void;
}

export interface MockTracker {
    timers: MockTimers;
    fn<F extends Callable = (...values: any[]) => undefined>(original?: F, implementation?: F): Mock<F>;
    method<T extends object, K extends keyof T>(
        object: T,
        name: K,
        implementation?: T[K],
    ): T[K] extends Callable ? Mock<T[K]> : never;
    getter<T extends object, K extends keyof T>(object: T, name: K, implementation?: () => T[K]): Mock<() => T[K]>;
    setter<T extends object, K extends keyof T>(
        object: T,
        name: K,
        implementation?: (value: T[K]) => void,
    ): Mock<(value: T[K]) => void>;
    restoreAll(): void;
    reset(): void;
}

export declare const test: Test;
export declare const it: Test;
export declare const suite: Suite;
export declare const describe: Suite;
export declare const before: Hook;
export declare const after: Hook;
export declare const beforeEach: Hook;
export declare const afterEach: Hook;
export declare const mock: MockTracker;
export default test;
