import grpc from '@grpc/grpc-js';
export default async () => {
  const identity = { serialize: (value) => Buffer.from(value), deserialize: (bytes) => bytes.toString() };
  const method = { path: '/t.T/Say', requestStream: false, responseStream: false, requestSerialize: identity.serialize, requestDeserialize: identity.deserialize, responseSerialize: identity.serialize, responseDeserialize: identity.deserialize };
  const Client = grpc.makeGenericClientConstructor({ say: method }, 'T');
  const client = new Client('127.0.0.1:1', grpc.credentials.createInsecure());
  const error = await new Promise((resolve) => client.say('hi', { deadline: Date.now() + 2000 }, resolve));
  client.close();
  return error.code;
};
