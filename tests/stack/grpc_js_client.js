// Calls the echo service of a gRPC door with grpc-js, and prints what came of each call as JSON.
const grpc = require("@grpc/grpc-js");

const same = (buffer) => buffer;
const client = new grpc.Client(`127.0.0.1:${process.argv[2]}`, grpc.credentials.createInsecure(), {
  "grpc.max_receive_message_length": -1,
  "grpc.max_send_message_length": -1,
  "grpc.default_compression_algorithm": Number(process.argv[3] || 0),
});

function unary(method, message, options = {}) {
  return new Promise((resolve) => {
    const call = client.makeUnaryRequest(
      `/test.Echo/${method}`, same, same, message, new grpc.Metadata(), options,
      (error, answer) => resolve(error ? { code: error.code, details: error.details } : answer),
    );
    if (options.cancel) setTimeout(() => call.cancel(), options.cancel);
  });
}

function stream(count, size) {
  return new Promise((resolve) => {
    const call = client.makeBidiStreamRequest("/test.Echo/Stream", same, same, new grpc.Metadata(), {});
    const got = [];
    call.on("data", (message) => got.push(message.length));
    call.on("status", (status) => resolve({ code: status.code, count: got.length, bytes: got.reduce((a, b) => a + b, 0) }));
    call.on("error", () => {});
    for (let index = 0; index < count; index++) call.write(Buffer.alloc(size, index));
    call.end();
  });
}

async function main() {
  const sizes = {};
  for (const size of [0, 1, 16379, 16380, 70000, 5000000]) {
    const message = Buffer.alloc(size, 7);
    sizes[size] = message.equals(await unary("Unary", message));
  }
  const many = await Promise.all(Array.from({ length: 3000 }, (_, index) => unary("Unary", Buffer.from(`${index}`))));
  console.log(JSON.stringify({
    sizes,
    many: many.every((answer, index) => answer.toString() === `${index}`),
    stream: await stream(3000, 10),
    large: await stream(20, 1000000),
    missing: await unary("Missing", Buffer.alloc(0)),
    late: await unary("Later", Buffer.alloc(0), { deadline: Date.now() + 100 }),
    cancelled: await unary("Later", Buffer.alloc(0), { cancel: 50 }),
    after: (await unary("Unary", Buffer.from("still here"))).toString(),
  }));
  client.close();
}

main();
