import { Kafka, logLevel } from 'kafkajs';
export default async () => {
  const kafka = new Kafka({ brokers: ['127.0.0.1:1'], logLevel: logLevel.NOTHING, retry: { retries: 0 }, connectionTimeout: 500 });
  const failed = await kafka.producer().connect().catch((error) => error.name);
  return [failed, typeof kafka.consumer({ groupId: 'g' }).subscribe];
};
