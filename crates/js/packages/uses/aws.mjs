import { AwsClient } from 'aws4fetch';
import {
  S3Client,
  PutObjectCommand,
  GetObjectCommand,
  ListObjectsV2Command,
  S3ServiceException,
} from '@aws-sdk/client-s3';
import http from 'node:http';
const serve = (h) =>
  new Promise((r) => {
    const s = http.createServer(h).listen(0, '127.0.0.1', () => r(s));
  });
export default async () => {
  const store = new Map();
  const heads = [];
  const s = await serve((q, a) => {
    const u = new URL(q.url, 'http://x');
    const out = [];
    q.on('data', (d) => out.push(d)).on('end', () => {
      heads.push([
        q.method,
        u.pathname,
        /AWS4-HMAC-SHA256/.test(q.headers.authorization ?? ''),
        q.headers['content-type'] ?? null,
        q.headers['x-amz-content-sha256']?.length ?? null,
      ]);
      if (q.method === 'PUT') {
        store.set(u.pathname, Buffer.concat(out));
        a.setHeader('etag', '"e"');
        a.end();
      } else if (u.searchParams.has('list-type')) {
        a.setHeader('content-type', 'application/xml');
        a.end(
          '<?xml version="1.0"?><ListBucketResult><Name>b</Name><KeyCount>1</KeyCount><Contents><Key>k&amp;1</Key><Size>3</Size></Contents></ListBucketResult>',
        );
      } else if (store.has(u.pathname)) a.end(store.get(u.pathname));
      else {
        a.statusCode = 404;
        a.end('<?xml version="1.0"?><Error><Code>NoSuchKey</Code><Message>no</Message></Error>');
      }
    });
  });
  const endpoint = `http://127.0.0.1:${s.address().port}`;
  const c = new S3Client({
    endpoint,
    region: 'us-east-1',
    forcePathStyle: true,
    credentials: { accessKeyId: 'a', secretAccessKey: 'b' },
    requestChecksumCalculation: 'WHEN_REQUIRED',
  });
  const put = await c.send(
    new PutObjectCommand({ Bucket: 'b', Key: 'k', Body: 'hello', ContentType: 'text/plain' }),
  );
  const got = await (await c.send(new GetObjectCommand({ Bucket: 'b', Key: 'k' }))).Body.transformToString();
  const list = (await c.send(new ListObjectsV2Command({ Bucket: 'b' }))).Contents;
  const err = await c
    .send(new GetObjectCommand({ Bucket: 'b', Key: 'none' }))
    .catch((e) => [e.name, e instanceof S3ServiceException, e.$metadata.httpStatusCode]);
  const aws = new AwsClient({ accessKeyId: 'a', secretAccessKey: 'b', service: 's3', region: 'eu-west-1' });
  const signed = await aws.sign('https://b.s3.amazonaws.com/k', { aws: { datetime: '20240101T000000Z' } });
  s.close();
  c.destroy();
  return [put.ETag, got, list, err, signed.headers.get('authorization'), heads];
};
