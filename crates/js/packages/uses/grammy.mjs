import { Bot } from 'grammy';
export default async () => {
  const bot = new Bot('1:abc', { client: { apiRoot: globalThis.servers.http } });
  await bot.init();
  const seen = [];
  bot.on('message:text', async (context) => { seen.push(context.message.text, (await context.reply('hi')).message_id); });
  await bot.handleUpdate({ update_id: 1, message: { message_id: 1, date: 1, chat: { id: 5, type: 'private', first_name: 'x' }, from: { id: 2, is_bot: false, first_name: 'x' }, text: 'hello' } });
  return [bot.botInfo.username, seen];
};
