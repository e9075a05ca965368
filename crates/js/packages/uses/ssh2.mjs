import ssh2 from 'ssh2';
import { generateKeyPairSync } from 'node:crypto';
export default async () => {
  const { Server, Client, utils } = ssh2;
  const key = generateKeyPairSync('ed25519').privateKey;
  const host = utils.generateKeyPairSync('ed25519');
  const s = new Server({ hostKeys: [host.private] }, (c) => {
    c.on('authentication', (a) =>
      a.method === 'password' && a.password === 'p' ? a.accept() : a.reject(['password']),
    )
      .on('ready', () =>
        c.on('session', (acc) =>
          acc().on('exec', (acc, rej, info) => {
            const st = acc();
            st.write(`ran ${info.command}`);
            st.exit(0);
            st.end();
          }),
        ),
      )
      .on('error', () => {});
  });
  await new Promise((r) => s.listen(0, '127.0.0.1', r));
  const out = await new Promise((res, rej) => {
    const c = new Client();
    c.on('ready', () =>
      c.exec('ls', (e, st) => {
        if (e) return rej(e);
        let b = '';
        let code;
        st.on('data', (d) => (b += d))
          .on('exit', (x) => (code = x))
          .on('close', () => {
            c.end();
            res([b, code]);
          });
      }),
    )
      .on('error', rej)
      .connect({ host: '127.0.0.1', port: s.address().port, username: 'u', password: 'p' });
  });
  s.close();
  return [out, utils.parseKey(host.public).type];
};
