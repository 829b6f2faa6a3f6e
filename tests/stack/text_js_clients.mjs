// Asks a text server with npm's ollama and openai: node text_js_clients.mjs URL. Prints one JSON object.
import { Ollama } from "ollama";
import OpenAI from "openai";

const url = process.argv[2];
const messages = [{ role: "user", content: "Say hi" }];
const options = { num_predict: 4, temperature: 0 };
const ollama = new Ollama({ host: url });
const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: "any", maxRetries: 0 });
const said = {};

said.list = (await ollama.list()).models.map((each) => each.name);
said.show = (await ollama.show({ model: "smollm2" })).capabilities;
said.chat = (await ollama.chat({ model: "smollm2", messages, options })).message.content;
said.chatStream = "";
for await (const part of await ollama.chat({ model: "smollm2", messages, options, stream: true })) {
  said.chatStream += part.message.content;
}
said.generate = (await ollama.generate({ model: "smollm2", prompt: "Hello", options })).done_reason;
said.unknown = await ollama.chat({ model: "nobody", messages }).catch((error) => [error.name, error.message]);

const ask = { model: "smollm2", messages, max_completion_tokens: 4, temperature: 0 };
const completion = await openai.chat.completions.create(ask);
said.completion = completion.choices[0].message.content;
said.tokens = completion.usage.completion_tokens;
said.completionStream = "";
for await (const chunk of await openai.chat.completions.create({ ...ask, stream: true })) {
  said.completionStream += chunk.choices[0]?.delta?.content ?? "";
}
said.models = [];
for await (const model of openai.models.list()) said.models.push(model.id);
said.response = (await openai.responses.create({ model: "smollm2", input: "Say hi", max_output_tokens: 16 })).output_text;
said.refused = await openai.chat.completions
  .create({ ...ask, model: "nobody" })
  .catch((error) => [error.status, error.type]);
console.log(JSON.stringify(said));
