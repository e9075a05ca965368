// What a plugin and the host agree on. Made from the host's own declarations by `cargo xtask generate`: do not edit.

/** A JSON object. */
export type JsonObject = { [key: string]: unknown };

/** A value, or a promise of it. */
export type Awaitable<T> = T | PromiseLike<T>;

/** A value nobody may write to, at any depth: writing throws. */
export type Frozen<T> = T extends (...given: never[]) => unknown
    ? T
    : T extends object
      ? { readonly [Key in keyof T]: Frozen<T[Key]> }
      : T;

/** What a plugin's module exports. There is no default export. */
export interface PluginModule<Options = JsonObject> {
    /** The plugin's id: a slug. Without it the id is the package's or the file's name. */
    name?: string;
    /** What a listing prints. */
    title?: string;
    /** Option values merged under the configured ones. */
    defaults?: JsonObject;
    /** JSON Schema of the options, one property per option key; checked before `apply`. */
    optionsSchema?: JsonObject;
    /** Runs once, before the host exists. Nothing may be registered after it returned. */
    apply(host: PluginHost, options: Options): Awaitable<void>;
}
