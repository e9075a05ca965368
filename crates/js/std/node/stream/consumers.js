import { Bytes } from 'internal/buffer';

async function* chunks(stream) {
  for await (const chunk of stream)
    yield typeof chunk === 'string'
      ? Bytes.from(chunk)
      : Bytes.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
}

export async function buffer(stream) {
  const all = [];
  for await (const chunk of chunks(stream)) all.push(chunk);
  return Bytes.concat(all);
}

export async function bytes(stream) {
  return new Uint8Array(await arrayBuffer(stream));
}

export async function arrayBuffer(stream) {
  const all = await buffer(stream);
  return all.buffer.slice(all.byteOffset, all.byteOffset + all.byteLength);
}

export async function blob(stream) {
  return new Blob([await buffer(stream)]);
}

export async function text(stream) {
  return new TextDecoder().decode(await buffer(stream));
}

export async function json(stream) {
  return JSON.parse(await text(stream));
}

export default { arrayBuffer, blob, buffer, bytes, json, text };
