import {
  BlobServiceClient,
  StorageSharedKeyCredential,
  generateBlobSASQueryParameters,
  BlobSASPermissions,
} from '@azure/storage-blob';
import http from 'node:http';
export default async () => {
  const seen = [];
  const s = await new Promise((r) => {
    const s = http
      .createServer((q, a) => {
        const parts = [];
        q.on('data', (d) => parts.push(d)).on('end', () => {
          seen.push([
            q.method,
            q.url,
            q.headers['x-ms-blob-type'],
            Buffer.concat(parts).toString(),
            (q.headers.authorization ?? '').startsWith('SharedKey acc:'),
          ]);
          if (q.method === 'GET' && q.url.includes('comp=list')) {
            a.setHeader('content-type', 'application/xml');
            a.end(
              '<?xml version="1.0"?><EnumerationResults ServiceEndpoint="x" ContainerName="c"><Blobs><Blob><Name>a.txt</Name><Properties><Content-Length>3</Content-Length><Etag>e</Etag><Last-Modified>Wed, 09 Sep 2009 09:20:02 GMT</Last-Modified></Properties></Blob></Blobs><NextMarker/></EnumerationResults>',
            );
          } else if (q.method === 'GET') {
            a.setHeader('content-length', 5);
            a.setHeader('etag', '"1"');
            a.setHeader('x-ms-blob-type', 'BlockBlob');
            a.end('hello');
          } else if (q.method === 'HEAD') {
            a.setHeader('content-length', 5);
            a.setHeader('etag', '"1"');
            a.end();
          } else {
            a.statusCode = 201;
            a.setHeader('etag', '"1"');
            a.end();
          }
        });
      })
      .listen(0, '127.0.0.1', () => r(s));
  });
  const cred = new StorageSharedKeyCredential('acc', Buffer.from('key').toString('base64'));
  const c = new BlobServiceClient(`http://127.0.0.1:${s.address().port}/acc`, cred).getContainerClient('c');
  const b = c.getBlockBlobClient('a.txt');
  const up = await b.upload('hey', 3);
  const dl = await b.downloadToBuffer();
  const d2 = await b.download();
  const parts = [];
  for await (const p of d2.readableStreamBody) parts.push(p);
  const names = [];
  for await (const x of c.listBlobsFlat())
    names.push([x.name, x.properties.contentLength, x.properties.lastModified.toISOString()]);
  const sas = generateBlobSASQueryParameters(
    {
      containerName: 'c',
      blobName: 'a',
      permissions: BlobSASPermissions.parse('r'),
      startsOn: new Date(0),
      expiresOn: new Date(1e12),
    },
    cred,
  ).toString();
  s.close();
  s.closeAllConnections();
  return [
    up.etag,
    dl.toString(),
    Buffer.concat(parts).toString(),
    names,
    sas,
    seen.map((x) => [x[0], x[2] ?? null, x[3], x[4]]),
  ];
};
