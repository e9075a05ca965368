import * as streams from 'internal/streams';

export * from 'internal/streams';
export default { ...streams };
