import sodium from 'libsodium-wrappers';
export default async () => {
  await sodium.ready;
  const k = new Uint8Array(32).fill(1),
    n = new Uint8Array(24).fill(2);
  const c = sodium.crypto_secretbox_easy('hi', n, k);
  return [
    sodium.to_hex(c),
    sodium.to_string(sodium.crypto_secretbox_open_easy(c, n, k)),
    sodium.crypto_generichash(16, 'x', null, 'hex'),
  ];
};
