import express from 'express';
import session from 'express-session';
import helmet from 'helmet';
import cors from 'cors';
import multer from 'multer';
import compression from 'compression';
import passport from 'passport';
import { Strategy } from 'passport-local';
import { gunzipSync } from 'node:zlib';
export default async () => {
  const app = express();
  app.use(helmet());
  app.use(cors({ origin: 'http://a.test' }));
  app.use(compression({ threshold: 0 }));
  app.use(session({ secret: 's', resave: false, saveUninitialized: false }));
  app.use(express.urlencoded({ extended: false }));
  passport.use(new Strategy((u, p, d) => d(null, p === 'right' ? { id: u } : false)));
  passport.serializeUser((u, d) => d(null, u.id));
  passport.deserializeUser((id, d) => d(null, { id }));
  app.use(passport.initialize());
  app.use(passport.session());
  app.post('/login', passport.authenticate('local'), (q, a) => a.json({ user: q.user.id }));
  app.get('/me', (q, a) => a.json({ user: q.user?.id ?? null }));
  app.post('/up', multer({ storage: multer.memoryStorage() }).single('f'), (q, a) =>
    a.json({ n: q.file.originalname, s: q.file.size, b: q.body }),
  );
  app.get('/big', (q, a) => a.type('text').send('x'.repeat(5000)));
  const s = await new Promise((r) => {
    const s = app.listen(0, '127.0.0.1', () => r(s));
  });
  const base = `http://127.0.0.1:${s.address().port}`;
  const login = await fetch(`${base}/login`, {
    method: 'POST',
    body: new URLSearchParams({ username: 'u', password: 'right' }),
  });
  const cookie = login.headers.get('set-cookie').split(';')[0];
  const me = await (await fetch(`${base}/me`, { headers: { cookie } })).json();
  const bad = await fetch(`${base}/login`, {
    method: 'POST',
    body: new URLSearchParams({ username: 'u', password: 'w' }),
  });
  const fd = new FormData();
  fd.set('f', new File(['hello'], 'a.txt'));
  fd.set('k', 'v');
  const up = await (await fetch(`${base}/up`, { method: 'POST', body: fd })).json();
  const big = await fetch(`${base}/big`, { headers: { origin: 'http://a.test' } });
  const text = await big.text();
  const br = await fetch(`${base}/big`, { headers: { 'accept-encoding': 'br' } });
  const r = [
    await login.json(),
    me,
    bad.status,
    up,
    text.length,
    big.headers.get('content-encoding'),
    big.headers.get('access-control-allow-origin'),
    big.headers.get('x-frame-options'),
    big.headers.get('content-security-policy')?.length,
    br.headers.get('content-encoding'),
    (await br.text()).length,
  ];
  s.close();
  s.closeAllConnections();
  return r;
};
