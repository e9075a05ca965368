import pg from 'pg';
import mysql from 'mysql2/promise';
import { MongoClient, ObjectId } from 'mongodb';
export default async () => {
  const refused = async (run) => run().then(() => 'connected', (error) => error.code ?? error.name);
  return [
    await refused(() => new pg.Client({ host: '127.0.0.1', port: 1 }).connect()),
    await refused(() => mysql.createConnection({ host: '127.0.0.1', port: 1 })),
    await refused(() => new MongoClient('mongodb://127.0.0.1:1', { serverSelectionTimeoutMS: 200 }).connect()),
    new ObjectId('507f1f77bcf86cd799439011').toString(),
  ];
};
