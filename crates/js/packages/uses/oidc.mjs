import { Provider } from 'oidc-provider';
export default async () => {
  const p = new Provider('http://a.test', {
    clients: [
      {
        client_id: 'c',
        client_secret: 's',
        grant_types: ['client_credentials'],
        redirect_uris: [],
        response_types: [],
      },
    ],
    features: { clientCredentials: { enabled: true } },
  });
  const s = await new Promise((r) => {
    const s = p.listen(0, '127.0.0.1', () => r(s));
  });
  const u = `http://127.0.0.1:${s.address().port}`;
  const d = await (await fetch(`${u}/.well-known/openid-configuration`)).json();
  const t = await (
    await fetch(`${u}/token`, {
      method: 'POST',
      body: new URLSearchParams({ grant_type: 'client_credentials', client_id: 'c', client_secret: 's' }),
    })
  ).json();
  s.close();
  s.closeAllConnections();
  return [d.issuer, t.token_type, t.expires_in];
};
