/**
 * What a command's handler throws to tell its caller what is wrong: a JSON-RPC code, a sentence, and facts
 * for a program.
 */
export class RpcError extends Error {
  constructor(code, message, data) {
    super(message);
    if (!Number.isInteger(code)) {
      throw new TypeError(`an RpcError needs its code to be an integer, not ${String(code)}`);
    }
    this.code = code;
    if (data !== undefined) this.data = data;
  }
}

Object.defineProperty(RpcError.prototype, 'name', { value: 'RpcError', configurable: true, writable: true });
