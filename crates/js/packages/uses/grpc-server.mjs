import grpc from '@grpc/grpc-js';
const text = { serialize: (value) => Buffer.from(value), deserialize: (bytes) => bytes.toString() };
const method = (path, responseStream = false, requestStream = false) => ({
  path,
  requestStream,
  responseStream,
  requestSerialize: text.serialize,
  requestDeserialize: text.deserialize,
  responseSerialize: text.serialize,
  responseDeserialize: text.deserialize,
});
const service = {
  say: method('/t.T/Say'),
  count: method('/t.T/Count', true),
  sum: method('/t.T/Sum', false, true),
  talk: method('/t.T/Talk', true, true),
};
export default async () => {
  const server = new grpc.Server();
  server.addService(service, {
    say(call, callback) {
      const trailers = new grpc.Metadata();
      trailers.set('x-trailer', 'yes');
      if (call.request === 'fail')
        callback({ code: grpc.status.INVALID_ARGUMENT, details: 'not that', metadata: trailers });
      else callback(null, `${call.metadata.get('x-from')[0]}: ${call.request}`, trailers);
    },
    count(call) {
      for (let at = 0; at < Number(call.request); at += 1) call.write(`${at}`);
      call.end();
    },
    sum(call, callback) {
      let sum = 0;
      call
        .on('data', (part) => {
          sum += Number(part);
        })
        .on('end', () => callback(null, `${sum}`));
    },
    talk(call) {
      call.on('data', (part) => call.write(part.toUpperCase())).on('end', () => call.end());
    },
  });
  const port = await new Promise((resolve, reject) => {
    server.bindAsync('127.0.0.1:0', grpc.ServerCredentials.createInsecure(), (error, found) =>
      error ? reject(error) : resolve(found),
    );
  });
  const client = new grpc.Client(`127.0.0.1:${port}`, grpc.credentials.createInsecure());
  const { say, count, sum, talk } = service;
  const from = new grpc.Metadata();
  from.set('x-from', 'ann');
  const unary = (words) =>
    new Promise((resolve) => {
      const seen = [];
      const call = client.makeUnaryRequest(
        say.path,
        say.requestSerialize,
        say.responseDeserialize,
        words,
        from,
        (error, answer) => {
          call.on('status', (status) =>
            resolve([
              error ? [error.code, error.details] : answer,
              status.code,
              status.metadata.get('x-trailer'),
              seen,
            ]),
          );
        },
      );
      call.on('metadata', () => seen.push('metadata'));
    });
  const streamed = [];
  for await (const part of client.makeServerStreamRequest(
    count.path,
    count.requestSerialize,
    count.responseDeserialize,
    '3',
  ))
    streamed.push(part);
  const summed = await new Promise((resolve, reject) => {
    const call = client.makeClientStreamRequest(
      sum.path,
      sum.requestSerialize,
      sum.responseDeserialize,
      (error, answer) => (error ? reject(error) : resolve(answer)),
    );
    for (const part of ['1', '2', '3']) call.write(part);
    call.end();
  });
  const talked = [];
  const both = client.makeBidiStreamRequest(talk.path, talk.requestSerialize, talk.responseDeserialize);
  both.write('a');
  both.write('b');
  both.end();
  for await (const part of both) talked.push(part);
  const said = [await unary('hi'), await unary('fail'), streamed, summed, talked];
  client.close();
  server.forceShutdown();
  return said;
};
