import nodemailer from 'nodemailer';
export default async () => {
  const transport = nodemailer.createTransport({ host: '127.0.0.1', port: globalThis.servers.smtp, secure: false, ignoreTLS: true });
  const sent = await transport.sendMail({ from: 'a@b.c', to: 'd@e.f', subject: 's', text: 'hello', attachments: [{ filename: 'x.txt', content: 'content' }] });
  transport.close();
  return [sent.accepted, sent.response];
};
