// What plugins use of `node:crypto`: hashes, signatures of webhooks, random values. With `@types/node` installed and
// `"types": ["node"]` in tsconfig.json, TypeScript takes the declarations of that package instead.

type Data = string | ArrayBufferView;
type TextEncoding = 'utf8' | 'utf-8' | 'hex' | 'base64' | 'base64url' | 'latin1';
type DigestEncoding = 'hex' | 'base64' | 'base64url';

export interface Hash {
    update(data: Data, encoding?: TextEncoding): this;
    digest(): Uint8Array;
    digest(encoding: DigestEncoding): string;
}

export interface KeyObject {
    readonly type: 'secret' | 'public' | 'private';
    readonly asymmetricKeyType?: string;
    export(options?: object): any;
}

/** A key: PEM text, DER with its format and type, or a JSON Web Key with `format: 'jwk'`. */
type Key = string | ArrayBufferView | KeyObject | { key: string | ArrayBufferView | object; [option: string]: unknown };

export declare function createHash(algorithm: string): Hash;
export declare function createHmac(algorithm: string, key: Data | KeyObject): Hash;
export declare function hash(algorithm: string, data: Data, encoding?: DigestEncoding): string;
/** Compares values of the same length in constant time; throws for values of different lengths. */
export declare function timingSafeEqual(a: ArrayBufferView, b: ArrayBufferView): boolean;
export declare function randomBytes(size: number): Uint8Array;
export declare function randomInt(max: number): number;
export declare function randomInt(min: number, max: number): number;
export declare function randomUUID(): string;
export declare function createPublicKey(key: Key): KeyObject;
export declare function createPrivateKey(key: Key): KeyObject;
export declare function createSecretKey(key: Data, encoding?: TextEncoding): KeyObject;
export declare function sign(algorithm: string | null | undefined, data: ArrayBufferView, key: Key): Uint8Array;
export declare function verify(
    algorithm: string | null | undefined,
    data: ArrayBufferView,
    key: Key,
    signature: ArrayBufferView,
): boolean;
export declare const webcrypto: Crypto;
