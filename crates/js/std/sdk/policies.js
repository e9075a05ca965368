// Policies: the check every door holds a row to, which is the daemon's own, and a store in one file.

import native from 'native/globals';
import { dirname } from 'node:path';

// Loaded at the first use: who imports the SDK for something else pays for neither.
const fs = () => native.load('node:fs/promises');
const sdk = () => native.load('native/sdk').default;

/** The row a body is, or the `RpcError` that names its wrong field. */
export function checkPolicy(body) {
  return sdk().checkPolicy(body);
}

/** A policy store in one JSON file: an array of rows, in the order they were put. */
export function filePolicies({ file }) {
  if (typeof file !== 'string' || file.trim() === '')
    throw new TypeError('filePolicies needs file to be a path');
  // One read or change after the other; each reads the file, so that a person may edit it.
  let last = Promise.resolve();
  const inTurn = (work) => {
    const done = last.then(work);
    last = done.catch(() => {});
    return done;
  };
  const read = async () => {
    let text;
    try {
      text = await fs().readFile(file, 'utf8');
    } catch (error) {
      if (error.code === 'ENOENT') return [];
      throw error;
    }
    return sdk().readPolicies(file, text);
  };
  const write = async (rows) => {
    await fs().mkdir(dirname(file), { recursive: true });
    await fs().writeFile(`${file}.new`, `${JSON.stringify(rows, null, 2)}\n`);
    await fs().rename(`${file}.new`, file);
  };
  return {
    list: () => inTurn(read),
    get: (id) => inTurn(async () => (await read()).find((row) => row.id === id)),
    put: (policy) =>
      inTurn(async () => {
        const row = checkPolicy(policy);
        const rows = await read();
        const at = rows.findIndex(({ id }) => id === row.id);
        await write(at < 0 ? [...rows, row] : rows.with(at, row));
      }),
    remove: (id) =>
      inTurn(async () => {
        const rows = await read();
        const left = rows.filter((row) => row.id !== id);
        if (left.length === rows.length) return false;
        await write(left);
        return true;
      }),
  };
}
