package threat

import (
	"html"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"sallyport.example/internal/css"
	"sallyport.example/internal/display"
)

// normal is a text as the rules read it: compatibility forms and accents undone, invisible characters left out, letters that look like Latin ones
// replaced by these in words that have no others, lower case, one space for all white space.
func normal(s string) string {
	var out strings.Builder
	space := true
	word := make([]rune, 0, 32)
	flush := func() {
		for _, r := range latinised(word) {
			out.WriteRune(unicode.ToLower(r))
		}
		word = word[:0]
	}
	for _, r := range norm.NFKD.String(s) {
		switch {
		case unicode.IsSpace(r):
			flush()
			if !space {
				out.WriteByte(' ')
			}
			space = true
			continue
		case unicode.Is(unicode.Mn, r), unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co), !display.Visible(r):
			continue
		case r == '’' || r == '‘' || r == 'ʼ' || r == '`' || r == '´':
			r = '\''
		}
		space = false
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			word = append(word, r)
			continue
		}
		flush()
		out.WriteRune(r)
	}
	flush()
	return strings.TrimRight(out.String(), " ")
}

// passFor maps letters of other scripts to the Latin ones that they look like.
var passFor = map[rune]rune{
	'а': 'a', 'в': 'b', 'е': 'e', 'һ': 'h', 'і': 'i', 'ј': 'j', 'к': 'k', 'м': 'm', 'н': 'h', 'о': 'o', 'р': 'p', 'с': 'c', 'т': 't', 'у': 'y', 'х': 'x',
	'ѕ': 's', 'ԁ': 'd', 'ԛ': 'q', 'ԝ': 'w', 'ӏ': 'l', 'ѵ': 'v', 'ɡ': 'g', 'ɩ': 'i', 'ı': 'i', 'ո': 'n', 'ս': 'u', 'օ': 'o', 'ց': 'g', 'հ': 'h',
	'α': 'a', 'ε': 'e', 'η': 'n', 'ι': 'i', 'κ': 'k', 'ν': 'v', 'ο': 'o', 'ρ': 'p', 'τ': 't', 'υ': 'u', 'χ': 'x', 'γ': 'y', 'ω': 'w',
}

// latinised returns a word in Latin letters, if all of it looks like them.
func latinised(word []rune) []rune {
	plain := true
	for _, r := range word {
		plain = plain && r < 0x80
	}
	if plain {
		return word
	}
	next := make([]rune, len(word))
	for i, r := range word {
		r = unicode.ToLower(r)
		if l, ok := passFor[r]; ok {
			r = l
		}
		if r >= 0x80 {
			return word
		}
		next[i] = r
	}
	return next
}

// splitWords returns the words of a name, which white space, signs and capitals separate.
func splitWords(s string) []string {
	var words []string
	start, before := -1, rune(0)
	for i, r := range s {
		letter := unicode.IsLetter(r) || unicode.IsDigit(r)
		if start >= 0 && (!letter || unicode.IsUpper(r) && unicode.IsLower(before)) {
			words, start = append(words, s[start:i]), -1
		}
		if letter && start < 0 {
			start = i
		}
		before = r
	}
	if start >= 0 {
		words = append(words, s[start:])
	}
	return words
}

// rule is one pattern. It is tried only around one of its triggers, so that a text without them costs little.
type rule struct {
	kind     string
	triggers []string
	re       *regexp.Regexp
	unless   func(match string) bool
}

// orders are rules for the forms in which definitions give models orders: about other tools, in secret, or about text that they have read. They
// are written for normal text. Descriptions of a tool ("returns", "use this to") and of its arguments must pass. They are compiled when the first definition is read:
// a command that reads none starts sooner.
var orders = sync.OnceValue(func() []rule {
	gap := strings.NewReplacer("~9", `[^.!?;。！？]{0,90}`, "~6", `[^.!?;。！？]{0,60}`, "~4", `[^.!?;。！？]{0,40}`, "~2", `[^.!?;。！？]{0,24}`, "~1", `[^.!?;。！？]{0,12}`)
	var all []rule
	add := func(kind, triggers, pattern string) {
		all = append(all, rule{kind: kind, triggers: strings.Split(triggers, "|"), re: regexp.MustCompile(gap.Replace(pattern))})
	}

	// Against the model's instructions.
	add("order", "ignor|disregard|forget|overrid|bypass|discard|follow", `\b(?:ignore|disregard|forget|override|bypass|discard|stop following)\b~4\b(?:instructions?|prompts?|guidelines?|directives?|system messages?)\b`)
	add("order", "ignor|disregard|forget|overrid|bypass|discard|follow", `\b(?:ignore|disregard|forget|override|bypass|discard|do not follow|don't follow|stop following)\b~2\b(?:previous|prior|above|earlier|preceding|safety|your)\b~2\b(?:instructions?|rules?|context|messages?|polic(?:y|ies)|restrictions?|constraints?|checks?)\b`)
	add("order", "you are ", `\byou are (?:now |no longer )(?:a|an|in|the|free|required|allowed|bound)\b`)
	add("order", "instruction|directive|override|mode|prompt", `\b(?:new|hidden|secret|updated|additional|real) (?:system )?(?:instructions?|directives?)\s*[:=]|\b(?:system|developer|admin|root) (?:override|mode|instruction|prompt)s?\s*:`)
	add("order", "attention|note|message", `\b(?:attention|note to|message to|message for)\b:? (?:the |all |any )?(?:ai|llm|assistant|model|language model|agent|claude|gpt|copilot)s?\b`)

	// Hidden from the person.
	add("order", "user|human|person|anyone|anybody|operator", `\b(?:do not|don't|never|must not|should not|shall not|without)\b~2\b(?:tell|telling|mention|mentioning|inform|informing|notify|notifying|reveal|revealing|disclose|disclosing|alert|alerting|ask|asking|show|showing|let|explain|explaining|report|reporting)\b~2\b(?:user|human|person|anyone|anybody|operator)\b`)
	add("order", "mention|disclose|reveal|acknowledge|talk about", `\b(?:do not|don't|never|must not|without) (?:mention|mentioning|disclose|disclosing|reveal|revealing|talk about|acknowledge)\b`)
	add("order", "keep", `\bkeep (?:this|it|that|these)\b~2\b(?:secret|hidden|confidential|to yourself|between us)\b`)
	add("order", "secretly|covertly|stealthily|surreptitiously|silently|knowledge|knowing|noticing|consent|know|see|told|informed|notice", `\b(?:secretly|covertly|stealthily|surreptitiously)\b|\bsilently (?:send|call|run|read|copy|forward|execute|include|add|append|upload)\b|\bwithout (?:the )?(?:user|human|person|operator)'?s? (?:knowledge|knowing|noticing|consent|awareness|seeing)\b|\b(?:user|human|person|operator) (?:must|should|does|do|need|needs) not (?:need to )?(?:know|see|be told|be informed|notice)\b`)

	// About other tools, and unconditional calls.
	add("order", "before|prior to", `\b(?:before|prior to)(?: you)? (?:using|use|calling|call|invoking|invoke|running|run|executing|execute|any|every|each)\b~4\b(?:tools?|functions?|commands?)\b`)
	add("order", "when|every time|each time|after", `\b(?:when(?:ever)?|every time|each time|after)(?: you)? (?:using|use|calling|call|invoking|invoke)\b~2\b(?:any|other|another|every|all)\b~2\b(?:tools?|functions?)\b`)
	add("order", "instead of|rather than|in place of|replaces|supersedes|overrides|prefer", `\b(?:instead of|rather than|in place of|replaces?|supersedes?|overrides?|prefer(?:red)? (?:this|it) (?:to|over))\b~2\b(?:any |all |every )?(?:other|another|existing|built-?in|native|default)\b~2\b(?:tools?|functions?|servers?|commands?)\b`)
	add("order", "must|shall|have to|has to|required|obliged|need|should", `\b(?:you|assistant|model|agent|ai|llm|claude|gpt|chatgpt|copilot) (?:must|shall|have to|has to|are required to|is required to|are obliged to|need to|needs to|should (?:always|also|first|never|immediately)) (?:always |also |first |never |then |immediately |now )*(?:call|invoke|execute|send|forward|e-?mail|upload|bcc|cc|append|copy|obey|ignore|disregard|transfer|exfiltrate|leak|prefer)\b`)
	add("order", "always|never forget|make sure|be sure|remember to|ensure", `\b(?:always|never forget to|make sure to|make sure you|be sure to|remember to|ensure that you|ensure you) (?:also |first |then |immediately )*(?:call|invoke|execute|send|forward|bcc|cc|upload|e-?mail|transfer|exfiltrate|prefer this|choose this|select this|pick this)\b`)
	add("order", "be called|be invoked|be executed|be added|be included|be sent|be forwarded|be copied|be run", `\b(?:must|shall|has to|have to|needs? to|should always) (?:always |also |first )?be (?:called|invoked|executed|run|added|included|sent|forwarded|copied)\b~2\b(?:before|prior|always|in every|with every|for every|on every|to every|any other)\b`)
	add("order", "important|mandatory|critical|crucial|essential|imperative|vital", `\b(?:mandatory|critical|crucial|essential|imperative|important|vital) (?:that you|for you to|you)\b`)

	// Read and hand over.
	add("order", "and|then", `\b(?:read|open|load|cat|access|retrieve|get|fetch|extract|collect|gather|dump)\b~9\b(?:and|then)\b~1\b(?:pass|send|include|provide|put|insert|append|copy|paste|submit|forward|post)\b~2\b(?:its|their|the|that|this|those|all|it|them)\b`)
	add("order", "content", `\b(?:pass|passing|include|provide|put|insert|paste|send)\b~1\b(?:its|their|the file's|the files'|file|file's) contents?\b`)
	add("order", "otherwise|or", `\b(?:otherwise|or else|or),? (?:the|this|that) (?:tool|function|call|request|server) (?:will|would|does|can|is going to) ?(?:not|fail|break|stop|be rejected|be blocked)`)
	add("order", "prompt|history|messages|conversation|chain of thought|instructions|list of", `\b(?:reveal|print|output|repeat|include|send|provide|put|copy|reproduce|insert|paste|append|full|entire|whole)\b~2\b(?:system prompt|system message|conversation history|chat history|message history|previous messages|conversation so far|conversation with the user|chain of thought|list of (?:all )?(?:available |your )?tools|your instructions|hidden instructions)\b`)

	// To an address.
	const to = `\b(?:to|at|via|with|using|through)\b (?:the |this |our |my |following )*(?:url |address |endpoint |server |webhook |site |recipient |email )?:? ?`
	add("link", "send|forward|post|upload|transmit|mail|exfiltrate|leak|report|submit|deliver|cc|copy", `\b(?:send|forward|post|upload|transmit|e-?mail|exfiltrate|leak|report|submit|deliver|copy)\b~6`+to+`['"<(]?(?:https?://|www\.|[a-z0-9._%+-]+@)[a-z0-9.-]+`)
	add("link", "bcc|cc", `\b(?:bcc|cc)\b~2[a-z0-9._%+-]+@[a-z0-9.-]+`)
	add("link", "://", `https?://(?:\d{1,3}\.){3}\d{1,3}|https?://[a-z0-9.-]*(?:ngrok|webhook\.site|requestbin|pipedream|burpcollaborator|interact\.sh|oast\.|trycloudflare|serveo\.net|localhost\.run)`)

	// German.
	add("order", "ignorier|missacht|vergiss|vergess|uberschreib", `\b(?:ignoriere?n?|missachten?|vergiss|vergessen|uberschreiben?)\b~4\b(?:anweisung|vorgabe|regel|instruktion|prompt|befehl)`)
	add("order", "nutzer|anwender|benutzer|niemand", `\b(?:nicht|nichts|nie|niemals|ohne|kein)\b~4(?:nutzer|anwender|person)\w*\b~2\b(?:zu )?(?:sag|erwahn|mitteil|verrat|frag|informier|zeig|erzahl)|\b(?:sage?n?|erzahlen?|erwahnen?|verraten?|informieren?|teilen?|fragen?)\b~2(?:nutzer|anwender|niemand)\w*\b~2\b(?:nicht|nichts|nie|niemals|davon)\b|\b(?:sage?|erzahle?|verrate?) (?:es |das |dies )?niemand`)
	add("order", "du musst|sie mussen|du sollst|du hast", `\b(?:du musst|sie mussen|du sollst|du hast)\b~6\b(?:auf(?:zu)?rufen|aus(?:zu)?fuhren|senden|schicken|lesen|weiterleiten|weiterzuleiten|kopieren|ubergeben)\b`)
	add("order", "bevor|vor ", `\b(?:bevor (?:du|sie)|vor (?:der|jeder|jedem))\b~4\b(?:werkzeug|tool|funktion|aufruf)`)
	add("order", "immer|stets|zuerst|vorher", `\b(?:rufe?|verwende|sende|schicke|lies|lese|fuhre|kopiere)\b~2\b(?:immer|stets|zuerst|vorher)\b`)

	// French.
	add("order", "ignore|oublie|neglige", `\b(?:ignore[rz]?|oublie[rz]?|neglige[rz]?)\b~4\b(?:consignes?|regles?|directives?|instructions?)\b`)
	add("order", "ne ", `\bne (?:(?:le|la|les|lui|leur|rien|jamais|pas) )*(?:dis|dites|dire|mentionne[rzs]?|revele[rzs]?|informe[rzs]?|previens|prevenez|prevenir|parle[rzs]?|demande[rzs]?)\b`)
	add("order", "tu dois|vous devez|il faut", `\b(?:tu dois|vous devez|il faut)\b~2\b(?:appeler|executer|envoyer|lire|transmettre|copier|transferer|ignorer)\b`)
	add("order", "avant", `\bavant (?:d'|de |toute |tout )?(?:utilis|appel|execut|invoqu)\w*\b~2\b(?:outil|fonction|commande)`)
	add("order", "toujours|d'abord|insu|sans", `\b(?:appelle[rz]?|envoie|envoye[rz]|execute[rz]?|lis|lisez|transmets|transmettez)\b~1\b(?:toujours|d'abord)\b|\btoujours (?:appele[rz]|envoye[rz]|execute[rz])\b|\ba l'insu\b|\bsans (?:le dire|en parler|informer|prevenir|demander|avertir)\b`)

	// Spanish.
	add("order", "ignor|olvid|omit", `\b(?:ignor(?:a|e|ar|en)|olvid(?:a|e|ar)|omit(?:e|a|ir))\b~4\b(?:instrucciones|ordenes|reglas|indicaciones)\b`)
	add("order", "no ", `\b(?:no|nunca) (?:(?:le|lo|se|les) )*(?:digas?|menciones?|reveles?|informes?|avises?|cuentes?|preguntes?)\b`)
	add("order", "debe|tienes que|tiene que|hay que", `\b(?:debes|debe|tienes que|tiene que|hay que)\b~2\b(?:llamar|ejecutar|enviar|leer|reenviar|copiar|transferir|ignorar)\b`)
	add("order", "antes de", `\bantes de (?:usar|utilizar|llamar|ejecutar|invocar)\b~2\b(?:herramienta|funcion|comando)`)
	add("order", "siempre|primero|sin ", `\b(?:llama|envia|ejecuta|lee|reenvia)\b~1\b(?:siempre|primero)\b|\bsiempre (?:llama|llamar|envia|enviar|ejecuta|ejecutar|reenvia)\b|\bsin (?:decir|informar|avisar|preguntar|mencionar)(?:se|lo|le|selo)?\b`)

	// Italian and Portuguese.
	add("order", "istruzioni|instrucoes", `\b(?:ignor(?:a|e|are|ar)|dimentica|esqueca)\b~4\b(?:istruzioni|instrucoes)\b`)
	add("order", "non |nao |dev", `\bnon (?:dire|dirlo|menzionare|informare|rivelare)\b|\bnao (?:diga|mencione|informe|revele|conte)\b|\b(?:devi|voce deve|deve)\b~1\b(?:chiamare|eseguire|inviare|inoltrare|chamar|executar|enviar|encaminhar)\b`)

	// Russian.
	add("order", "игнор|забуд|сообщ|говори|упомин", `(?:игнорир|забудь)~4(?:инструкц|указан|правил)|не (?:сообщай|говори|упоминай|рассказывай)~4`)

	// Chinese and Japanese.
	add("order", "忽略|无视|無視|忘记|忘記|不要遵守|不要理会", `(?:忽略|无视|無視|忘记|忘記|不要遵守|不要理会)~1(?:指令|指示|提示|规则|規則|要求|命令)|(?:以前|これまで|上記)の(?:指示|命令)を(?:無視|忘)`)
	add("order", "告诉|告訴|提及|提到|透露|通知|询问|詢問|知道", `(?:不要|不能|别|切勿|禁止|不得|无需|勿|不)~1(?:告诉|告訴|提及|提到|透露|通知|询问|詢問|让)~1(?:用户|使用者|用戶|任何人|他人|人)|(?:用户|使用者|用戶)不(?:能|应|该|得|会)?知道`)
	add("order", "必须|必須|务必|務必|一定要|总是|總是|始终", `(?:必须|必須|务必|務必|一定要|总是|總是|始终)~1(?:调用|調用|执行|執行|发送|發送|读取|讀取|转发|轉發|复制|複製|上传)`)
	add("order", "之前|前", `(?:使用|调用|調用|执行|執行|运行)~1(?:工具|函数|功能|命令)~1前`)
	add("order", "伝え|言わ|知らせ|教え", `(?:ユーザー|ユーサー|利用者)に~1(?:言わない|伝えない|知らせない|教えない|言うな|伝えるな)`)

	// Text for the model and not for a reader.
	add("markup", "<|[|!|#", `</?(?:important|system|sys|instructions?|assistant|hidden|override|critical|urgent|mandatory|tool_calls?|function_calls?|invoke|system-reminder|system_prompt|im_start|im_end|human)\b[^<>]{0,80}>|<<sys>>|<\|[^|<>]{1,40}\|>|\[/?inst\]|\[(?:system|hidden|override)\]|###\s*(?:system|instructions?|assistant)\b|!\[[^\]]{0,80}\]\(\s*https?:`)
	add("hidden", "<!--", `<!--`)
	add("hidden", "hidden|popover|style", `<[a-z](?:"[^"]*"|'[^']*'|[^<>"'])*`)
	all[len(all)-1].unless = func(tag string) bool { return !hidesText(tag) }

	// Names that no description needs: credentials, the client's configuration, the system's files.
	add("path", "~|$home|%userprofile|ssh|rsa|ed25519|ecdsa|authorized_keys|known_hosts|.env|mcp|claude|cursor|/etc/|/proc/|/root|.aws|.kube|.npmrc|.netrc|.git-cred|_history|.pgpass|.docker|.gnupg|keychain|wallet.dat|appdata|private key|.bashrc|.zshrc|.profile|token|.key",
		`(?:~|\$home|%userprofile%|%appdata%)[/\\]\.?\w+|\.ssh\b|\bid_(?:rsa|ed25519|ecdsa|dsa)\b|\bauthorized_keys\b|\bknown_hosts\b|(?:^|[\s/'"(=])\.env\b|\bmcp(?:_config|_settings|servers)?\.json\b|\bclaude_desktop_config\b|\.cursor/|/etc/\w|/proc/\w|/root/\S|\.aws/|\.kube/|\.npmrc\b|\.netrc\b|\.git-credentials\b|\.(?:bash|zsh|python)_history\b|\.pgpass\b|\.docker/config|\.gnupg\b|\bwallet\.dat\b|\.(?:bashrc|zshrc|profile)\b|\b(?:admin|local)\.token\b|\bsigning\.key\b`)
	for i := range all {
		if all[i].kind == "link" {
			all[i].unless = func(match string) bool { return forExample.MatchString(match) }
		}
	}
	return all
})

var (
	// elementName matches the name at the beginning of a tag, attribute one attribute of it.
	elementName = regexp.MustCompile(`^<([a-z][a-z0-9-]*)(?:[\s/]|$)`)
	attribute   = regexp.MustCompile(`([^\s"'/=]+)(?:\s*=\s*("[^"]*"|'[^']*'|[^\s"']+))?`)
	// textless are elements that have no text to hide.
	textless = regexp.MustCompile(`^(?:area|base|br|col|embed|hr|img|input|link|meta|source|track|wbr)$`)
)

// hidesText tells whether the start tag of an element hides its text from who looks at it. What aria-hidden marks is seen.
func hidesText(tag string) bool {
	name := elementName.FindStringSubmatch(tag)
	if name == nil || textless.MatchString(name[1]) {
		return false
	}
	for _, a := range attribute.FindAllStringSubmatch(tag[len(name[0]):], -1) {
		switch a[1] {
		case "hidden", "popover":
			return true
		case "style":
			if css.Hides(html.UnescapeString(strings.Trim(a[2], `"'`))) {
				return true
			}
		}
	}
	return false
}

// forExample matches addresses that are reserved for examples (RFC 2606), or those of the machine itself.
var forExample = regexp.MustCompile(`[@/.](?:example\.(?:com|org|net|edu)|[a-z0-9-]+\.(?:example|test|invalid)|test\.com|localhost|127\.0\.0\.1|0\.0\.0\.0)$`)

// ruleSpan bounds the distance of a match from a trigger of its rule.
const ruleSpan = 320

// judge looks for orders in the text of the stream.
func (st *stream) judge(r *reading) {
	text := st.text.String()
	if text == "" {
		return
	}
	all := orders()
	for i := range all {
		rule := &all[i]
		for _, w := range rule.windows(text) {
			for _, at := range rule.re.FindAllStringIndex(text[w[0]:w[1]], -1) { // all: what is excused may stand before what isn't
				from, to := w[0]+at[0], w[0]+at[1]
				if rule.unless == nil || !rule.unless(text[from:to]) {
					r.add(rule.kind, st.where(from), around(text, from, to))
				}
			}
		}
		if len(r.found) >= maxSuspicions {
			return
		}
	}
	st.named(r, text)
}

// windows returns the parts of a text in which the rule can match, in order and without overlaps.
func (u *rule) windows(text string) (all [][2]int) {
	for _, t := range u.triggers {
		for at := 0; ; {
			i := strings.Index(text[at:], t)
			if i < 0 {
				break
			}
			at += i
			all = append(all, [2]int{max(0, at-ruleSpan), min(len(text), at+len(t)+ruleSpan)})
			if at += len(t); len(all) > 1000 {
				return [][2]int{{0, len(text)}}
			}
		}
	}
	slices.SortFunc(all, func(a, b [2]int) int { return a[0] - b[0] })
	apart := all[:0]
	for _, w := range all {
		if n := len(apart); n > 0 && w[0] <= apart[n-1][1] {
			apart[n-1][1] = max(apart[n-1][1], w[1])
		} else {
			apart = append(apart, w)
		}
	}
	return apart
}

var (
	nameToken = regexp.MustCompile(`[a-z0-9][a-z0-9_.-]{1,127}`)
	// What makes a word of the same server's tool an order, before it and after it.
	commands = regexp.MustCompile(`\b(?:must|always|never|immediately|secretly|before (?:using|calling|invoking|running))\b[^.!?;]{0,50}$`)
	obliged  = regexp.MustCompile(`^[^.!?;]{0,30}\b(?:must be called|must always|immediately)\b`)
	aTool    = regexp.MustCompile(`^['"]?[\s(]{0,2}(?:tool|function|command)\b`)
	theTool  = regexp.MustCompile(`\b(?:tool|function|command|call|invoke)(?: named| called)?:? ['"]?$`)
)

// named finds the names of other tools: any of other servers, and those of the same server in an order.
func (st *stream) named(r *reading, text string) {
	if len(r.names) == 0 {
		return
	}
	for _, at := range nameToken.FindAllStringIndex(text, -1) {
		name := strings.TrimRight(text[at[0]:at[1]], ".-_")
		own, known := r.names[name]
		if !known || name == r.self {
			continue
		}
		end := at[0] + len(name)
		before, after := text[max(0, at[0]-80):at[0]], text[end:min(len(text), end+80)]
		if own {
			if commands.MatchString(before) || obliged.MatchString(after) {
				r.add("tool", st.where(at[0]), around(text, at[0], end))
			}
			continue
		}
		// A name of one word is a word of the language, unless the text says that it is a tool.
		if strings.ContainsAny(name, "_-.") && len(name) > 5 || aTool.MatchString(after) || theTool.MatchString(before) || commands.MatchString(before) {
			r.add("tool", st.where(at[0]), around(text, at[0], end))
		}
	}
}

// around returns a part of a text with a little of the text beside it.
func around(s string, from, to int) string {
	const beside = 24
	a, b := max(0, from-beside), min(len(s), max(to, from)+beside)
	if b-a > quoteMax {
		b = a + quoteMax
	}
	return strings.ToValidUTF8(s[a:b], "")
}
