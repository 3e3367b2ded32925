package integration

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// luaMutants are errors in the Lua of a script, whose Go form stays right. In every script of one
// rule of the kind, or of every kind if it is empty, wrong replaces old.
var luaMutants = []struct{ kind, old, wrong string }{
	{"calendar", "count1 = count1 + n", "count1 = count1 + 1"},
	{"calendar", "target - offset", "target"},
	{"calendar", "(month - first) % every", "month % every"},
	{"calendar", "days(month + 1) - 1)", "days(month + 1))"},
	{"calendar", "(latest + shift) % every", "latest % every"},
	{"calendar", "if count1 == 0 then edge1 = 0 end", "if count1 ~= 0 then edge1 = 0 end"},
	{"concurrency", "if held1 <= now then held1", "if held1 < now then held1"},
	{"concurrency", "live1 > rank and rank >= 0", "live1 >= rank and rank >= 0"},
	{"concurrency", "if live1 == 0 then", "if live1 ~= 0 then"},
	{"dailyquota", "count1 = count1 + n", "count1 = count1 + 1"},
	{"dailyquota", "local clock = now + offset", "local clock = now"},
	{"dailyquota", "math.max(count1 - n, 0)", "math.max(count1 - 1, 0)"},
	{"fixedwindow", "count1 = math.max(count1 - n, 0)", "count1 = math.max(count1 - n - 1, 0)"},
	{"fixedwindow", "if count1 == 0 then edge1 = 0 end", "if count1 ~= 0 then edge1 = 0 end"},
	{"fixedwindow", "if rest and rest > 0 then", "if false then"},
	{"gcra", "if rem1 > 0 then ends = tat1 + 1 end", "if rem1 > 0 then ends = tat1 end"},
	{"gcra", "if den1 ~= parts1 then", "if den1 == parts1 then"},
	{"gcra", "if den1 ~= parts then", "if den1 == parts then"},
	{"gcra", "if tat1 >= at then ahead", "if tat1 > at then ahead"},
	{"gcra", "tat1 - now > span1 then", "tat1 - now >= span1 then"},
	{"gcra", "from1 + size), was_tat)", "from1), was_tat)"},
	{"gcra", "behind, rest = behind - over, rest + over", ""},
	{"gcra", "math.max(late - size, 0)", "math.min(late - size, 0)"},
	{"gcra", "local ok = room1 >= n", "local ok = room1 > n"},
	{"gcra", "if slack == 0 and from", "if from"},
	{"gcra", "if take < 0 then take = 0 end", "if take < 0 then take = 1 end"},
	{"gcra", "at = now + ARGV[4]", "at = now"},
	{"gcra", "from <= prev1 and prev1 < from + 1048576", "true"},
	{"gcra", "if tat1 > 9007199254740991 then", "if false then"},
	{"gcra", "or #t_tat1 > 1 and t_tat1 < '1'", ""},
	{"gcra", "if ends <= now then", "if ends < now then"},
	{"gcra", "~= '' and gen1 == was[1] then", "~= '' then"},
	{"gcra", "redis.call('UNLINK', KEYS[2])", ""},
	{"gcra", "' ' .. ARGV[3] .. ' ' .. ARGV[6] .. ints", "' 1 ' .. ARGV[6] .. ints"},
	{"gcra", "else\ngave = 2\nend", "end"},
	{"leakybucket", "waits = tat1 > at or", "waits = tat1 >= at or"},
	{"leakybucket", "if waits and room > 0 then room = 0 end", ""},
	{"leakybucket", "local at = now\n", ""},
	{"metadatawindow", "if now >= edge1 then", "if now > edge1 then"},
	{"metadatawindow", "if rest > 0 then edge1", "if false then edge1"},
	{"metadatawindow", "count1 == 0 or rest > 0 or", "count1 == 0 or"},
	{"pause", "if until1 > now then", "if until1 >= now then"},
	{"pause", "if ends < held then ends = held end", ""},
	{"pause", "until1 = score + 0", "until1 = score + 1"},
	{"pause", ">= 64", "> 64"},
	{"pause", "if held <= now and", "if held > now and"},
	{"pause", "if ended > 0 then", "if false then"},
	{"pause", "if until1 > now then", "if until1 > at then"},
	{"pause", "== 1 and held > now then", "== 1 then"},
	{"pause", "if ends < until1 then ends = until1 end", ""},
	{"pause", "string.sub(newest[1], 1, 3) ~= 'p1 '", "false"},
	{"slidingbuckets", "if began == start then", "if began ~= start then"},
	{"slidingbuckets", "if i == 1 then owner1", "if i ~= 1 then owner1"},
	{"slidingcounter", "elseif now - start1 >= window1 then", "elseif now - start1 > window1 then"},
	{"slidingcounter", "if rest > 0 then weight", "if rest >= 0 then weight"},
	{"tokenbucket", "if lack > capacity1 then", "if lack >= capacity1 then"},
	{"tokenbucket", "from + was[2]), left)", "from), left)"},
	{"tokenbucket", "from < left - was[2]", "from <= left - was[2]"},
	{"", "and m[1][4] > n then", "and m[1][4] > n + 1 then"},
	{"", "and m[1][4] > n then", "and m[1][4] >= n then"},
	{"", "elseif rem1 > 0 then\ntat1 = tat1 - 1\nend", "end"},
	{"", "tat1 = tat1 - 1\nend", "tat1 = tat1 - 2\nend"},
	{"", "if rem > 0 then tat = tat + 1 end", ""},
	{"", "if rem > 0 then tat = tat + 1 end", "tat = tat + 1"},
	{"", "value, 'KEEPTTL')\nend\nelse", "value, 'PX', '99999999')\nend\nelse"},
	{"", "value, 'KEEPTTL')\nend\nelse", "value, 'PX', '1')\nend\nelse"},
	{"", "if back > 0 and moved1 + back", "if back >= 0 and moved1 + back"},
	{"", "if lack > (ARGV[1]+0) then", "if lack >= (ARGV[1]+0) then"},
	{"", "behind > 0 and ahead > total", "behind > 0 and ahead >= total"},
	{"", "if n == 1 and ARGV[3] ~= '' then", "if ARGV[3] ~= '' then"},
	{"", "tat1 - now > (ARGV[2]+0)", "tat1 - now >= (ARGV[2]+0)"},
	{"", "if behind > 0 then back = 0 end", ""},
	{"", "then held = held + m[1][2] end", "then held = held end"},
	{"", " and moved1 == m[1][9] then", " then"},
	{"", "if n > 0 and (was[5] - ARGV[6]) % 8589934592 == 0 then", "if n > 0 then"},
	{"", "if kept > 0 and some == 0 then return", "if kept > 99 and some == 0 then return"},
	{"", "total = math.min(total, spent + math.max(room + debt, 0))", ""},
	{"", "if keeps[1] then kept = kept + 1 end", ""},
	{"", "if not some and (kept > 0 or not ended) then total, change = first[3], false end", ""},
	{"", "if not some and (kept > 0 or not ended) then total, change = first[3], false end", "if not some and (kept > 0 or not ended) then change = false end"},
	{"", "if m[1] and (m[1][5] - ARGV[7]) % 8589934592 == 0 and tail1", "if m[1] and tail1"},
	{"", "m[1] and (m[1][5] - ARGV[7]) % 8589934592 == 0 and tail1", "false and tail1"},
	{"", "if m[1][9] <= now then m[1] = nil end", "if m[1][9] < now then m[1] = nil end"},
	{"", "if (m[1][5] - ARGV[9]) % 8589934592 == 0 then\nlocal anchor1", "do\nlocal anchor1"},
	{"", "lack % 1 - lack - 1", "-lack - 1"},
	{"", "lack % 1 - lack - 1", "lack % 1 - lack - 9"},
	{"", "(time - time % 1) + 3", "(time - time % 1) + 2"},
	{"", "if sum >= 9007199254740992 then", "if false then"},
	{"", "if cost > most * parts then", "if false then"},
	{"", "if rem > rest then late = late - 1 end", ""},
	{"", "local some = n % parts\ncost =", "local some = 0\ncost ="},
	{"", "(n - some) / parts * num + math", "n / parts * num + math"},
	{"", "some * num / parts), most) - 2", "some * num / parts), most)"},
	{"", "rem + kept", "rem"},
	{"", "= true else m[1] = nil end", "= true end"},
	{"", "if ends <= now then\nif m[1]", "if ends < now then\nif m[1]"},
	{"", "(m[1] and m[1][3] or fresh)", "0"},
	{"", "was[2] = was[2] - n", ""},
	{"", "m[1][3] = total", ""},
	{"", "local at = now\nlocal left", "local left"},
	{"", "if waits and room > 0 then room = 0 end", "if waits then room = 0 end"},
	{"", "8589934591", "4294967296"},
	{"", "and place < size - dead1 then", "and place <= size - dead1 then"},
	{"", "<= n and dead1 == 0 then", "<= n then"},
	{"", "if time <= after then", "if time < after then"},
	{"", "after + 1), nil, nil", "after), nil, nil"},
	{"", "if owner ~= string.format('%d', gen) or", "if"},
	{"", "was_tat + was_moved - moved1, from1 + size), was_tat)", "was_tat + was_moved + moved1, from1 + size), was_tat)"},
	{"", "was_tat + was_moved - moved1, from1 + size)", "was_tat - moved1, from1 + size)"},
	{"", "from1 + size), was_tat)", "from1 + size), tat1)"},
	{"", "math.max(late - size, 0)", "math.max(late - back, 0)"},
	{"", "local shift = was_moved - moved1", "local shift = -moved1"},
	{"", "if least > late then", "if least < late then"},
	{"", "then late, rest, shift = was_tat, was_rem, 0 end", "then late, rest, shift = was_tat, 0, 0 end"},
	{"", "local whole = size - rest + parts - 1", "local whole = size + parts - 1"},
	{"", "math.max(up, (whole - whole % parts) / parts)", "up"},
	{"", "left + was_moved - moved1, from + was[2])", "left - moved1, from + was[2])"},
	{"", "left + was_moved - moved1, from + was[2])", "left + was_moved - moved1, from)"},
	{"", "from + was[2]), left)", "from + was[2]), lack)"},
	{"", "local behind = left + past", "local behind = left"},
	{"", "math.max(behind - was[2], 0)", "math.max(behind - give, 0)"},
	{"", "local behind = tat1 - late", "local behind = tat1 + late"},
	{"", "if behind > 0 and tat1", "if behind > 1 and tat1"},
	{"", "back = math.min(back, tat1 - now)", "back = math.max(back, tat1 - now)"},
	{"", "if moved1 > 0 then first = math.min(first, from1) end", ""},
	{"", "first = math.min(first, from1)", "first = math.max(first, from1)"},
	{"", "moved1, from1 = moved1 + back, first", "moved1, from1 = back, first"},
	{"", "local late, rest, cost, size = was_tat + shift", "local late, rest, cost, size = was_tat - shift"},
	{"", "< (earlier - earlier % num) / num then", "<= (earlier - earlier % num) / num then"},
	{"", "< (earlier - earlier % num) / num then", "> (earlier - earlier % num) / num then"},
	{"", "behind, rest = behind - over, rest + over", "behind, rest = behind - over, rest - over"},
	{"", "moved1, from1 = moved1 + up, first", "moved1, from1 = moved1 + back, first"},
	{"", "rem < 0 then tat", "rem <= 0 then tat"},
	{"", "math.max(lack - left, 0)", "math.max(lack + left, 0)"},
	{"", "if moved1 > 0 and from <", "if from <"},
	{"", "if give == lack then", "if give >= 0 then"},
	{"", "if behind > 0 then back = 0 end", "if behind >= 0 then back = 0 end"},
	{"", "if behind > 0 then back = 0 end", "if behind > 1 then back = 0 end"},
	{"", "'-8' or '-1'", "'-7' or '-1'"},
	{"", "or #log == 8 then", "then"},
	{"", "if time >= now then", "if false then"},
	{"", "number1 == 8388607 then newest1", "number1 == 8388606 then newest1"},
	{"", "number1, age1, dead1 = 0, 0, -1", "age1, dead1 = 0, -1"},
	{"", "(before + cost) % 4503599627370496", "before + cost"},
	{"", "dead1 = log[i], i - 1", "dead1 = log[i], i"},
	{"", "format('(%d', after)", "format('(%d', after - 1)"},
	{"", "used1 = (total1 - upto) % 4503599627370496", "used1 = total1 - upto"},
	{"", "if oldest or age1 > 0 or", "if age1 > 0 or"},
	{"", "if oldest or age1 > 0 or", "if oldest or"},
	{"", "some - need < 0 then", "some - need < -1 then"},
	{"", "number1 - place) % 8388608", "number1 - place)"},
	{"", "if rest ~= '' then back =", "if false then back ="},
	{"", "and (place + i) % (2 * bit) == 0 do", "and (place + i + 1) % (2 * bit) == 0 do"},
	{"", "if i + bit <= later then\nupto", "if i + bit < later then\nupto"},
	{"", "if i + bit <= later then\nlocal", "if i + bit < later then\nlocal"},
	{"", "(upto - before - back) %", "(upto - before) %"},
	{"", "if sum + block >= need then", "if sum + block > need then"},
	{"", "(upto - before - back + after) %", "(upto - before - back) %"},
	{"", "if sum + half >= need then", "if sum + half > need then"},
	{"", "back = back - after", "back = back"},
	{"", "dead1 = (place - oldest) % 8388608", "dead1 = 2"},
	{"", "age1 <= later + 1\n", "age1 <= later\n"},
	{"", "if age1 > later + 1 + dead1 then", "if age1 > later + 1 then"},
	{"", "used1, need = sum, sum + n - limit", "used1 = sum"},
	{"", "if dead1 >= 2 then", "if dead1 >= 3 then"},
	{"", "math.min(dead1, 16)", "math.min(dead1, 15)"},
	{"", "elseif dead1 < 0 then", "elseif false then"},
	{"", "(number1 + 1) % 8388608", "number1 + 1"},
	{"", "if gen > 0 or age1 > 0 then", "if gen > 0 then"},
	{"", "if age1 > 0 then age1 = age1 + 1 end", ""},
	{"", "(back + more) % 4503599627370496", "back"},
	{"", "cost - less)", "cost + 0)"},
	{"", "new or age + 0", "age + 0"},
	{"", "elseif used1 <= n and", "elseif used1 < n and"},
	{"", "while i < size do", "while i < size - 1 do"},
	{"", "number % (2 * bit) == 0 do bit", "number % (4 * bit) == 0 do bit"},
	{"", "if age1 == 0 or age1 > place + 1 then", "if age1 == 0 then"},
	{"", "elseif cost + 0 > n then", "elseif cost + 0 >= n then"},
	{"", "if age1 > 0 then change(get(1), 0, 0, age1 - 1) end", ""},
	{"", "age1 - 1)", "age1)"},
}

// TestLuaMutants checks that the cases of TestForms find every mutant.
func TestLuaMutants(t *testing.T) {
	notLight(t)
	notShort(t)
	t.Parallel()
	server := newFormServer(t)
	cases := formCases
	for seed := range uint64(120) {
		r := rand.New(rand.NewPCG(seed, 22))
		for _, k := range formKinds(r) {
			cases = append(cases, k.history(r))
		}
	}
	for _, m := range luaMutants {
		t.Run(m.kind+" "+m.old+" → "+m.wrong, func(t *testing.T) {
			t.Parallel()
			mutated := map[string]bool{} // scripts that have the text, by SHA-1
			for _, c := range cases {
				uses := false
				for _, call := range c.calls {
					p := program(call.limit)
					s := p.Script(call.verb)
					has, ok := mutated[s.SHA()]
					if !ok {
						has = strings.Contains(s.Lua(), m.old) && (m.kind == "" || m.kind == p.Name())
						mutated[s.SHA()] = has
					}
					uses = uses || has
				}
				if uses && server.run(c, m.old, m.wrong) != nil {
					return
				}
			}
			t.Errorf("not found, among %d scripts", len(mutated))
		})
	}
}
