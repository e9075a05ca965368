import grpc from '@grpc/grpc-js';
const text = { serialize: (value) => Buffer.from(value), deserialize: (bytes) => bytes.toString() };
const method = (path, responseStream, requestStream = false) => ({ path, requestStream, responseStream, requestSerialize: text.serialize, requestDeserialize: text.deserialize, responseSerialize: text.serialize, responseDeserialize: text.deserialize });
const Client = grpc.makeGenericClientConstructor({ say: method('/t.T/Say', false), count: method('/t.T/Count', true), sum: method('/t.T/Sum', false, true), talk: method('/t.T/Talk', true, true) }, 'T');
const unary = (client, word, metadata = new grpc.Metadata(), options = {}) =>
  new Promise((resolve) => {
    const seen = {};
    const call = client.say(word, metadata, options, (error, answer) => {
      seen.error = error && [error.code, error.details, error.metadata?.get('x-trailer')];
      seen.answer = answer ?? null;
    });
    call.on('status', (status) => setImmediate(() => resolve([seen, status.code, status.metadata.get('x-trailer')])));
  });
export default async () => {
  const said = [];
  for (const [port, credentials] of [[servers.grpc, grpc.credentials.createInsecure()], [servers.grpcs, grpc.credentials.createSsl(Buffer.from(servers.ca))]]) {
    const client = new Client(`localhost:${port}`, credentials);
    await new Promise((resolve, reject) => client.waitForReady(Date.now() + 5000, (error) => (error ? reject(error) : resolve())));
    const metadata = new grpc.Metadata();
    metadata.set('x-from', 'plugin');
    said.push(await unary(client, 'hi', metadata), await unary(client, 'fail'));
    const late = await unary(client, 'never', metadata, { deadline: Date.now() + 100 });
    said.push([late[0].error[0], late[1]]);
    const parts = [];
    for await (const part of client.count('5')) parts.push(part);
    let size = 0;
    for await (const part of client.count('3000')) size += part.length;
    said.push(parts, size);
    said.push(await new Promise((resolve, reject) => {
      const call = client.sum((error, answer) => (error ? reject(error) : resolve(answer)));
      for (const part of ['1', '2', '39']) call.write(part);
      call.end();
    }));
    const talk = client.talk();
    const heard = [];
    talk.write('one');
    for await (const part of talk) {
      heard.push(part);
      if (part === 'ONE') talk.write('two');
      else talk.end();
    }
    said.push(heard);
    const cancelled = client.talk();
    const gone = new Promise((resolve) => cancelled.on('error', (error) => resolve(error.code)));
    cancelled.cancel();
    said.push(await gone);
    client.close();
  }
  const nobody = new Client('127.0.0.1:1', grpc.credentials.createInsecure());
  said.push((await unary(nobody, 'hi', undefined, { deadline: Date.now() + 2000 }))[1]);
  nobody.close();
  return said;
};
