import { Octokit } from '@octokit/rest';
export default async () => {
  const octokit = new Octokit({ baseUrl: globalThis.servers.http });
  const { data, status } = await octokit.rest.repos.get({ owner: 'a', repo: 'b' });
  return [status, data];
};
