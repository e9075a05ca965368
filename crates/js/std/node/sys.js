export * from 'node:util';
export { default } from 'node:util';
