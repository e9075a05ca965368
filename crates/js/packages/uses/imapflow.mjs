import { ImapFlow } from 'imapflow';
export default async () => {
  const client = new ImapFlow({ host: '127.0.0.1', port: globalThis.servers.imap, secure: false, doSTARTTLS: false, disableAutoIdle: true, auth: { user: 'u', pass: 'p' }, logger: false });
  await client.connect();
  const box = await client.mailboxOpen('INBOX');
  await client.logout();
  return [box.path, box.exists];
};
