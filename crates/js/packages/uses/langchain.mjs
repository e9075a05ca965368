import { PromptTemplate } from '@langchain/core/prompts';
import { RunnableLambda } from '@langchain/core/runnables';
import { StringOutputParser } from '@langchain/core/output_parsers';
import { AIMessage } from '@langchain/core/messages';
export default async () => {
  const chain = PromptTemplate.fromTemplate('say {what}').pipe(RunnableLambda.from((prompt) => new AIMessage(prompt.toString().toUpperCase()))).pipe(new StringOutputParser());
  const parts = [];
  for await (const part of await chain.stream({ what: 'hi' })) parts.push(part);
  return [await chain.invoke({ what: 'hello' }), parts.join(''), await chain.batch([{ what: 'a' }, { what: 'b' }])];
};
