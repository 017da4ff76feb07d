-- Returns whether another server wrote the hash last and this one was a replica before: the last writes may be missing here.
local function elsewhere(stored, here)
  return stored.replid ~= here.replid and not string.match(here.earlier, '^0*$')
end

-- Returns why the hash must not be written, or nil.
local function refusal(stored, here, failover)
  if not here.master then
    return 'replica'
  elseif stored == 'foreign' then
    return 'foreign'
  elseif stored and failover == 'refuse' and elsewhere(stored, here) then
    return 'promoted'
  end
  return nil
end

