-- This file precedes every script. A Lua double cannot hold every id, so ids are decimal text, and scripts add them in two halves of ten digits.
local BASE = 10000000000

local function wide(digits)
  return { tonumber(string.sub(digits, 1, -11)) or 0, tonumber(string.sub(digits, -10)) }
end

local function digits(number)
  if number[1] == 0 then
    return string.format('%.0f', number[2])
  end
  return string.format('%.0f%010.0f', number[1], number[2])
end

local function less(a, b)
  return a[1] < b[1] or (a[1] == b[1] and a[2] < b[2])
end

local function plus(a, b)
  local high, low = a[1] + b[1], a[2] + b[2]
  if low >= BASE then
    return { high + 1, low - BASE }
  end
  return { high, low }
end

-- Returns the role and the replication ids of the server as of now: a promotion or a restart changes them.
local function server()
  local info = redis.call('INFO', 'replication')
  local function value(key)
    return string.match(info, '\n' .. key .. ':([^\r\n]*)') or ''
  end
  return {
    master = value('role') == 'master',
    replid = value('master_replid'),
    earlier = value('master_replid2'),
  }
end

-- Returns the run id of the server's process.
local function run()
  return string.match(redis.call('INFO', 'server'), '\nrun_id:([^\r\n]*)') or ''
end
