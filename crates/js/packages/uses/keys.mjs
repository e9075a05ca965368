import forge from 'node-forge';
import * as openpgp from 'openpgp';
import webpush from 'web-push';
import jwksClient from 'jwks-rsa';
import jwt from 'jsonwebtoken';
import http from 'node:http';
import { generateKeyPairSync, createECDH } from 'node:crypto';
const serve = (h) =>
  new Promise((r) => {
    const s = http.createServer(h).listen(0, '127.0.0.1', () => r(s));
  });
export default async () => {
  const keys = forge.pki.rsa.generateKeyPair({ bits: 1024, workers: 0 });
  const md = forge.md.sha256.create();
  md.update('x', 'utf8');
  const ok = keys.publicKey.verify(md.digest().bytes(), keys.privateKey.sign(md));
  const { privateKey, publicKey } = await openpgp.generateKey({
    type: 'curve25519',
    userIDs: [{ name: 'n', email: 'a@b.c' }],
    format: 'object',
  });
  const enc = await openpgp.encrypt({
    message: await openpgp.createMessage({ text: 'hello' }),
    encryptionKeys: publicKey,
    signingKeys: privateKey,
  });
  const dec = await openpgp.decrypt({
    message: await openpgp.readMessage({ armoredMessage: enc }),
    decryptionKeys: privateKey,
    verificationKeys: publicKey,
  });
  const vapid = webpush.generateVAPIDKeys();
  const ua = createECDH('prime256v1');
  ua.generateKeys();
  const details = webpush.generateRequestDetails(
    {
      endpoint: 'https://push.test/x',
      keys: { p256dh: ua.getPublicKey('base64url'), auth: Buffer.alloc(16, 1).toString('base64url') },
    },
    'payload',
    { vapidDetails: { subject: 'mailto:a@b.c', publicKey: vapid.publicKey, privateKey: vapid.privateKey } },
  );
  const pair = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const s = await serve((q, a) => {
    a.setHeader('content-type', 'application/json');
    a.end(
      JSON.stringify({
        keys: [{ ...pair.publicKey.export({ format: 'jwk' }), kid: 'k', use: 'sig', alg: 'RS256' }],
      }),
    );
  });
  const client = jwksClient({ jwksUri: `http://127.0.0.1:${s.address().port}/` });
  const key = (await client.getSigningKey('k')).getPublicKey();
  const tokens = ['RS256', 'PS256', 'RS512'].map((algorithm) =>
    jwt.verify(jwt.sign({ a: 1 }, pair.privateKey, { algorithm, noTimestamp: true }), key),
  );
  const es = generateKeyPairSync('ec', { namedCurve: 'P-521' });
  const e512 = jwt.verify(
    jwt.sign({ b: 1 }, es.privateKey, { algorithm: 'ES512', noTimestamp: true }),
    es.publicKey,
  );
  s.close();
  s.closeAllConnections();
  return [
    ok,
    dec.data,
    await dec.signatures[0].verified,
    vapid.publicKey.length,
    details.body.length,
    details.headers.Authorization.slice(0, 8),
    key.split('\n')[0],
    tokens,
    e512,
  ];
};
