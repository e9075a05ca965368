import FormData from 'form-data';
import { request } from 'node:http';
import { Readable } from 'node:stream';
export default async () => {
  const form = new FormData();
  form.append('field', 'field value');
  form.append('file', Readable.from(['file ', 'content']), { filename: 'a.txt', knownLength: 12 });
  const text = await new Promise((resolve, reject) => {
    const made = request(`${globalThis.servers.http}/form`, { method: 'POST', headers: form.getHeaders() }, async (response) => {
      let all = '';
      for await (const part of response) all += part;
      resolve(all);
    });
    made.on('error', reject);
    form.pipe(made);
  });
  return JSON.parse(text);
};
