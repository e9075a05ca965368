import * as jose from 'jose';
export default async () => {
  const secret = new TextEncoder().encode('a secret that is long enough to be one');
  const token = await new jose.SignJWT({ a: 1 }).setProtectedHeader({ alg: 'HS256' }).setIssuer('me').sign(secret);
  const { payload } = await jose.jwtVerify(token, secret, { issuer: 'me' });
  const { publicKey, privateKey } = await jose.generateKeyPair('ES256');
  const signed = await new jose.SignJWT({ b: 2 }).setProtectedHeader({ alg: 'ES256' }).sign(privateKey);
  return [token, payload, (await jose.jwtVerify(signed, publicKey)).payload, jose.decodeJwt(token)];
};
