import { Telegraf } from 'telegraf';
export default async () => {
  const bot = new Telegraf('1:abc', { telegram: { apiRoot: globalThis.servers.http } });
  const me = await bot.telegram.getMe();
  bot.botInfo = me;
  const seen = [];
  bot.on('text', async (context) => { seen.push(context.message.text); seen.push((await context.reply('hi')).message_id); });
  await bot.handleUpdate({ update_id: 1, message: { message_id: 1, date: 1, chat: { id: 5, type: 'private' }, from: { id: 2, is_bot: false, first_name: 'x' }, text: 'hello' } });
  return [me.username, seen];
};
