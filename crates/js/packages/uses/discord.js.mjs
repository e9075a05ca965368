import { REST, Client, GatewayIntentBits, EmbedBuilder, SlashCommandBuilder } from 'discord.js';
export default async () => {
  const client = new Client({ intents: [GatewayIntentBits.Guilds] });
  const embed = new EmbedBuilder().setTitle('t').setColor(0xff0000);
  const command = new SlashCommandBuilder().setName('ping').setDescription('d');
  const answer = [embed.toJSON(), command.toJSON().name, client.isReady()];
  await client.destroy();
  return [answer, typeof REST];
};
