-- POSTs one body over and over: wrk -s post.lua URL -- BODY_FILE CONTENT_TYPE [HEADER VALUE]...
-- Ends with one line "wrk: key=value ..." whose times are microseconds.

function init(arguments)
  local file = assert(io.open(arguments[1], "rb"))
  wrk.method = "POST"
  wrk.body = file:read("*a")
  wrk.headers["Content-Type"] = arguments[2]
  for i = 3, #arguments, 2 do
    wrk.headers[arguments[i]] = arguments[i + 1]
  end
  file:close()
end

function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    "wrk: requests=%d duration=%d p50=%d p90=%d p99=%d status=%d connect=%d read=%d write=%d timeout=%d\n",
    summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(90), latency:percentile(99),
    errors.status, errors.connect, errors.read, errors.write, errors.timeout))
end
