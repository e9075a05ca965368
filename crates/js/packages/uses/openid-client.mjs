import * as client from 'openid-client';
import http from 'node:http';
import { generateKeyPair, exportJWK, SignJWT } from 'jose';
const serve = (h) =>
  new Promise((r) => {
    const s = http.createServer(h).listen(0, '127.0.0.1', () => r(s));
  });
export default async () => {
  const { publicKey, privateKey } = await generateKeyPair('RS256');
  const jwk = { ...(await exportJWK(publicKey)), kid: 'k', alg: 'RS256', use: 'sig' };
  let issuer;
  const s = await serve(async (q, a) => {
    a.setHeader('content-type', 'application/json');
    if (q.url.includes('openid-configuration'))
      a.end(
        JSON.stringify({
          issuer,
          authorization_endpoint: `${issuer}/auth`,
          token_endpoint: `${issuer}/token`,
          jwks_uri: `${issuer}/jwks`,
          response_types_supported: ['code'],
          subject_types_supported: ['public'],
          id_token_signing_alg_values_supported: ['RS256'],
        }),
      );
    else if (q.url.includes('jwks')) a.end(JSON.stringify({ keys: [jwk] }));
    else {
      const id = await new SignJWT({ sub: 'me' })
        .setProtectedHeader({ alg: 'RS256', kid: 'k' })
        .setIssuer(issuer)
        .setAudience('c')
        .setIssuedAt()
        .setExpirationTime('5m')
        .sign(privateKey);
      a.end(JSON.stringify({ access_token: 'at', token_type: 'bearer', id_token: id, expires_in: 300 }));
    }
  });
  issuer = `http://127.0.0.1:${s.address().port}`;
  const config = await client.discovery(new URL(issuer), 'c', 'secret', undefined, {
    execute: [client.allowInsecureRequests],
  });
  const verifier = 'v'.repeat(50);
  const challenge = await client.calculatePKCECodeChallenge(verifier);
  const url = client.buildAuthorizationUrl(config, {
    redirect_uri: 'http://x/cb',
    scope: 'openid',
    code_challenge: challenge,
    code_challenge_method: 'S256',
    state: 's',
  });
  const tokens = await client.authorizationCodeGrant(config, new URL('http://x/cb?code=abc&state=s'), {
    pkceCodeVerifier: verifier,
    expectedState: 's',
  });
  s.close();
  s.closeAllConnections();
  return [challenge, url.searchParams.get('client_id'), tokens.access_token, tokens.claims().sub];
};
