package threat

import "slices"

// ctxClass is a group of words that label a number nearby.
type ctxClass uint8

const (
	ctxCard ctxClass = iota
	ctxSSN
	ctxTaxDE
	ctxNINO
	ctxNIR
	ctxDNI
	ctxBSN
	ctxCPF
	ctxAadhaar
	ctxPersonal // any of the national ids
	ctxOrdinary // says that a number is an ordinary one
	ctxServiceAccount
	ctxClasses
)

// never is the place of a context word that was not seen.
const never = -1 << 40

var contextWords = []struct {
	class ctxClass
	words []string
}{
	{ctxCard, []string{"card", "credit", "debit", "visa", "mastercard", "amex", "pan", "kreditkarte", "carte", "tarjeta", "cc"}},
	{ctxSSN, []string{"ssn", "social security", "social-security", "socialsecurity"}},
	{ctxTaxDE, []string{"steuer", "steuerid", "steuer-id", "steuernummer", "steueridentifikationsnummer", "steuerliche", "idnr", "tin", "tax id", "tax-id", "taxid", "tax number"}},
	{ctxNINO, []string{"nino", "national insurance", "national-insurance", "nationalinsurance", "ni number", "ni no"}},
	{ctxNIR, []string{"nir", "insee", "numss", "sociale", "secu"}},
	{ctxDNI, []string{"dni", "nie", "nif", "documento", "identidad"}},
	{ctxBSN, []string{"bsn", "burgerservicenummer", "burgerservice", "sofinummer", "sofi", "citizen service"}},
	{ctxCPF, []string{"cpf", "cadastro"}},
	{ctxAadhaar, []string{"aadhaar", "aadhar", "adhaar", "uidai"}},
	{ctxPersonal, []string{"national id", "national-id", "nationalid", "identity number", "identity-number", "identity card", "id card", "personal id", "personalausweis"}},
	{ctxOrdinary, []string{
		"id", "ids", "order", "invoice", "tracking", "serial", "timestamp", "time", "imei", "isbn", "sku", "ean", "gtin", "upc", "phone", "tel", "mobile",
		"shipment", "parcel", "ref", "reference", "ticket", "case", "version", "build", "size", "bytes", "count", "offset", "part", "product", "item", "seed", "etag",
	}},
	{ctxServiceAccount, []string{"service-account"}},
}

const (
	// near for values whose check digits already say much; wide enough for a table's heading.
	wide = 512
	// near for values without a check digit.
	narrow = 40
)

// confirmContext remembers where a whole word stands; an identifier's parts count
// (user_ssn, userSsn), a piece of a word (testing, Daniel) does not.
func confirmContext(s *scan, w *keyword, end int) {
	start := end - len(w.text)
	if p := s.at(start - 1); letter(p) && !(isLower(p) && isUpper(s.v[start])) {
		return
	}
	if n := s.at(end); isLower(n) || isUpper(n) && isUpper(s.v[end-1]) {
		return
	}
	s.seen[w.ctx] = end
}

func letter(c byte) bool  { return isLower(c) || isUpper(c) }
func isLower(c byte) bool { return c >= 'a' && c <= 'z' }
func isUpper(c byte) bool { return c >= 'A' && c <= 'Z' }
func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// near reports whether a word of class c ended within dist bytes before at.
func (s *scan) near(c ctxClass, at, dist int) bool { return at-s.seen[c] <= dist }

// labelled reports whether a word before at labels the number there as the national id of class c.
func (s *scan) labelled(c ctxClass, at int) bool {
	return s.near(c, at, wide) || s.near(ctxPersonal, at, wide)
}

// confirmNumber is called at the fourth digit of a run of digits (and again at each further one).
func confirmNumber(s *scan, _ *keyword, end int) {
	if end <= s.numEnd {
		return
	}
	start := end - 4
	stop := end
	for stop < len(s.v) && isDigit(s.v[stop]) {
		stop++
	}
	s.numEnd = stop
	prev, next := s.at(start-1), s.at(stop)

	if letter(prev) || prev == ' ' || prev == '-' {
		if s.iban(start) || s.ssn(start, stop) || letter(prev) && s.lettered(start, stop) {
			return
		}
	}
	if !s.clearBefore(start) {
		return
	}
	switch n := stop - start; {
	case n == 4 && (next == ' ' || next == '-' || next == '.'):
		s.grouped(start, next)
	case n == 8 && isUpper(next) && !isWord(s.at(stop+1)):
		if s.labelled(ctxDNI, start) && dniLetter(number(s.v[start:stop])) == next {
			s.add(kNationalES, start, stop+1)
		}
	case n == 17 && (next == 'X' || next == 'x') && !isWord(s.at(stop+1)):
		if chineseID(s.v[start : stop+1]) {
			s.add(kNationalCN, start, stop+1)
		}
	case s.clearAfter(stop):
		s.compact(start, stop)
	}
}

// clearBefore: a number is not the tail of a word, a decimal, a UUID, a date or a telephone number.
func (s *scan) clearBefore(start int) bool {
	switch p := s.at(start - 1); p {
	case '.', ',', ':', '/':
		return !isDigit(s.at(start - 2))
	case '-':
		return !alnum[s.at(start-2)]
	case '+', '_', '#', '%':
		return false
	default:
		return !alnum[p] && p < 0x80
	}
}

func (s *scan) clearAfter(stop int) bool {
	switch n := s.at(stop); n {
	case '.', ':', '/':
		return !isDigit(s.at(stop + 1))
	case '-':
		return !alnum[s.at(stop+1)]
	case '_', '%':
		return false
	default:
		return !alnum[n] && n < 0x80
	}
}

// compact judges a number without separators.
func (s *scan) compact(start, stop int) {
	b := s.v[start:stop]
	switch n := len(b); {
	case n >= 13 && n <= 19 && s.compactCard(start, b):
		s.add(kCard, start, stop)
	case n == 18 && chineseID(b):
		s.add(kNationalCN, start, stop)
	case n == 15 && nir(b) && s.labelled(ctxNIR, start):
		s.add(kNationalFR, start, stop)
	case n == 12 && s.labelled(ctxAadhaar, start) && aadhaar(b):
		s.add(kNationalIN, start, stop)
	case n == 11 && s.labelled(ctxTaxDE, start) && steuerID(b):
		s.add(kNationalDE, start, stop)
	case n == 11 && s.labelled(ctxCPF, start) && cpf(b):
		s.add(kNationalBR, start, stop)
	case n == 9 && s.labelled(ctxBSN, start) && bsn(b):
		s.add(kNationalNL, start, stop)
	case n == 9 && s.near(ctxSSN, start, narrow) && ssnShape(b):
		s.add(kNationalUS, start, stop)
	}
}

// compactCard: 15 (American Express) and 16 digits are a card, unless the text calls the number something
// ordinary or it is a JSON number, as ids are and cards hardly ever; other lengths need a word.
func (s *scan) compactCard(start int, b []byte) bool {
	n := issuer(b)
	if n == issuerNone || !luhn(b) || !varied3(b) {
		return false
	}
	if s.near(ctxCard, start, 64) {
		return true
	}
	return !s.near(ctxOrdinary, start, 24) && (n == issuerUsual && !s.jsonNumber(start) || s.near(ctxCard, start, wide))
}

// grouped judges groups of digits that begin with four: cards and Aadhaar.
func (s *scan) grouped(start int, sep byte) {
	var buf [19]byte
	n, i := 0, start
	shape := 0 // the sizes of the groups as decimal digits: 4444, 465
	for {
		from := i
		for isDigit(s.at(i)) {
			if n == len(buf) || i-from == 6 {
				return
			}
			buf[n] = s.v[i]
			n, i = n+1, i+1
		}
		shape = shape*10 + i - from
		// After the digits of a card, what follows a blank is the next thing (expiry, code).
		whole := shape == 4444 || shape == 465 || shape == 464
		if s.at(i) != sep || !isDigit(s.at(i+1)) || whole && sep == ' ' {
			break
		}
		i++
	}
	if c := s.at(i); alnum[c] || c == '_' || sep != ' ' && c == sep && alnum[s.at(i+1)] {
		return
	}
	b := buf[:n]
	switch shape {
	case 444:
		if sep == '.' || !s.labelled(ctxAadhaar, start) || !aadhaar(b) {
			return
		}
		s.add(kNationalIN, start, i)
	case 4444, 465, 464, 44443:
		if issuer(b) == issuerNone || !luhn(b) || !varied3(b) {
			return
		}
		s.add(kCard, start, i)
	default:
		return
	}
	s.numEnd = i
}

// jsonNumber reports whether a member's value without quotes begins at at.
func (s *scan) jsonNumber(at int) bool {
	for range 8 {
		if c := s.at(at - 1); c != ' ' && c != '\t' {
			break
		}
		at--
	}
	return s.at(at-1) == ':' && s.at(at-2) == '"'
}

const (
	issuerNone = iota
	issuerUsual
	issuerRare // real, but as often the shape of another number
)

// issuer checks the ranges of ISO/IEC 7812 as the networks publish them.
func issuer(b []byte) int {
	p := number(b[:6])
	switch n := len(b); n {
	case 16:
		switch {
		case b[0] == '4',
			p >= 510000 && p <= 559999, p >= 222100 && p <= 272099, // Mastercard
			p >= 352800 && p <= 358999,                             // JCB
			p >= 601100 && p <= 601199, p >= 644000 && p <= 659999, // Discover
			p >= 620000 && p <= 629999, // UnionPay
			p >= 220000 && p <= 220499: // Mir
			return issuerUsual
		case p >= 560000 && p <= 699999, p >= 500000 && p <= 509999, p >= 817200 && p <= 820199: // Maestro, RuPay, UnionPay
			return issuerRare
		}
	case 15:
		if p/10000 == 34 || p/10000 == 37 { // American Express
			return issuerUsual
		}
	case 14:
		if p/1000 >= 300 && p/1000 <= 305 || p/10000 == 36 || p/10000 == 38 || p/10000 == 39 { // Diners Club
			return issuerRare
		}
	case 13, 17, 18, 19:
		if b[0] == '4' && (n == 13 || n == 19) || n > 16 && (b[0] == '6' || b[0] == '5') {
			return issuerRare
		}
	}
	return issuerNone
}

func luhn(b []byte) bool {
	sum := 0
	for i := range b {
		d := int(b[len(b)-1-i] - '0')
		if i%2 == 1 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	return sum%10 == 0
}

// number reads digits; b has at most 18.
func number(b []byte) int {
	n := 0
	for _, c := range b {
		n = n*10 + int(c-'0')
	}
	return n
}

// ssn: the run of four digits [start,stop) ends ddd-dd-dddd (SSA, "Social Security Number Randomization": no area
// 000, 666 or 900 and up, no group 00, no serial 0000). With blanks it needs a word.
func (s *scan) ssn(start, stop int) bool {
	at := start - 7
	if stop-start != 4 || at < 0 {
		return false
	}
	v := s.v[at:stop]
	sep := v[6]
	if sep != '-' && sep != ' ' || v[3] != sep || s.at(stop) == '-' || isWord(s.at(stop)) || isWord(s.at(at-1)) || !s.clearBefore(at) || s.at(stop) == '.' && isDigit(s.at(stop+1)) {
		return false
	}
	d := [9]byte{v[0], v[1], v[2], v[4], v[5], v[7], v[8], v[9], v[10]}
	if !ssnShape(d[:]) {
		return false
	}
	labelled := s.labelled(ctxSSN, at)
	if !labelled && (sep == ' ' || s.near(ctxOrdinary, at, 24)) {
		return false
	}
	s.add(kNationalUS, at, stop)
	return true
}

func ssnShape(b []byte) bool {
	for _, c := range b {
		if !isDigit(c) {
			return false
		}
	}
	area := number(b[:3])
	return area != 0 && area != 666 && area < 900 && number(b[3:5]) != 0 && number(b[5:]) != 0
}

// lettered judges digits that follow letters directly: NINO and NIE.
func (s *scan) lettered(start, stop int) bool {
	end := stop + 1
	if !isUpper(s.at(stop)) || isWord(s.at(end)) {
		return false
	}
	switch n := stop - start; {
	case n == 6 && start >= 2 && !isWord(s.at(start-3)) && ninoLetters(s.v[start-2], s.v[start-1], s.v[stop]):
		if s.labelled(ctxNINO, start) {
			s.add(kNationalGB, start-2, end)
			return true
		}
	case n == 7 && !isWord(s.at(start-2)) && s.v[start-1] >= 'X' && s.v[start-1] <= 'Z':
		if s.labelled(ctxDNI, start) && dniLetter(int(s.v[start-1]-'X')*10000000+number(s.v[start:stop])) == s.v[stop] {
			s.add(kNationalES, start-1, end)
			return true
		}
	}
	return false
}

// ninoLetters: HMRC, National Insurance Manual NIM39110.
func ninoLetters(a, b, suffix byte) bool {
	if suffix < 'A' || suffix > 'D' || !isUpper(a) || !isUpper(b) {
		return false
	}
	for _, c := range "DFIQUV" {
		if a == byte(c) || b == byte(c) {
			return false
		}
	}
	switch string([]byte{a, b}) {
	case "BG", "GB", "NK", "KN", "TN", "NT", "ZZ":
		return false
	}
	return b != 'O'
}

// dniLetter: Ministerio del Interior, "Cálculo del dígito de control del NIF-NIE".
func dniLetter(n int) byte { return "TRWAGMYFPDXBNJZSQVHLCKE"[n%23] }

// confirmPairs sees "dd dd dd ": the middle of a spaced NINO or of a spaced NIR.
func confirmPairs(s *scan, _ *keyword, end int) {
	at := end - 9
	if at >= 3 && s.v[at-1] == ' ' && !isWord(s.at(at-4)) && isUpper(s.at(end)) && !isWord(s.at(end+1)) && ninoLetters(s.v[at-3], s.v[at-2], s.v[end]) {
		s.add(kNationalGB, at-3, end+1)
		return
	}
	// d dd dd dd ddd ddd dd
	if at >= 2 && s.v[at-1] == ' ' && isDigit(s.v[at-2]) && s.clearBefore(at-2) && end+10 <= len(s.v) {
		var d [15]byte
		n := 0
		for i := at - 2; i < end+10; i++ {
			if isDigit(s.v[i]) && n < len(d) {
				d[n] = s.v[i]
				n++
			} else if s.v[i] != ' ' {
				return
			}
		}
		if n == len(d) && s.v[end+3] == ' ' && s.v[end+7] == ' ' && nir(d[:]) && s.clearAfter(end+10) {
			s.add(kNationalFR, at-2, end+10)
		}
	}
}

// nir: INSEE, numéro d'inscription au répertoire: sex, year, month, department, commune, order, key 97.
// Corsica's 2A and 2B are left out.
func nir(b []byte) bool {
	month := number(b[3:5])
	if b[0] != '1' && b[0] != '2' || month == 0 || month > 12 && month < 20 || month > 42 && month < 50 || number(b[5:7]) == 0 {
		return false
	}
	key := number(b[13:15])
	return key >= 1 && key <= 97 && key == 97-number(b[:13])%97
}

func confirmSteuerSpaced(s *scan, _ *keyword, end int) {
	at := end - 14
	if !s.clearBefore(at) || !s.clearAfter(end) || !s.labelled(ctxTaxDE, at) {
		return
	}
	v := s.v[at:end]
	d := [11]byte{v[0], v[1], v[3], v[4], v[5], v[7], v[8], v[9], v[11], v[12], v[13]}
	if steuerID(d[:]) {
		s.add(kNationalDE, at, end)
	}
}

// steuerID: Bundeszentralamt für Steuern, "Steuerliche Identifikationsnummer": in the first ten digits exactly one
// appears two or three times, and ISO/IEC 7064 MOD 11,10.
func steuerID(b []byte) bool {
	var n [10]int
	for _, c := range b[:10] {
		n[c-'0']++
	}
	twice, thrice := 0, 0
	for _, k := range n {
		switch {
		case k == 2:
			twice++
		case k == 3:
			thrice++
		case k > 3:
			return false
		}
	}
	if b[0] == '0' || twice+thrice != 1 {
		return false
	}
	p := 10
	for _, c := range b[:10] {
		sum := (int(c-'0') + p) % 10
		if sum == 0 {
			sum = 10
		}
		p = sum * 2 % 11
	}
	return (11-p)%10 == int(b[10]-'0')
}

// confirmCPF sees ddd?ddd?ddd?dd in the written form 123.456.789-09.
func confirmCPF(s *scan, _ *keyword, end int) {
	at := end - 14
	v := s.v[at:end]
	if v[11] != '-' || !s.clearBefore(at) || !s.clearAfter(end) {
		return
	}
	var d [11]byte
	n := 0
	for _, c := range v {
		if isDigit(c) {
			d[n] = c
			n++
		}
	}
	if cpf(d[:]) {
		s.add(kNationalBR, at, end)
	}
}

// cpf: Receita Federal, two check digits modulo 11.
func cpf(b []byte) bool {
	if !varied3(b) {
		return false
	}
	for n := 9; n <= 10; n++ {
		sum := 0
		for i := range n {
			sum += int(b[i]-'0') * (n + 1 - i)
		}
		if sum*10%11%10 != int(b[n]-'0') {
			return false
		}
	}
	return true
}

// bsn: Rijksdienst voor Identiteitsgegevens, the "elfproef".
func bsn(b []byte) bool {
	sum := 0
	for i, c := range b[:8] {
		sum += int(c-'0') * (9 - i)
	}
	sum -= int(b[8] - '0')
	return sum != 0 && sum%11 == 0
}

// aadhaar: UIDAI; Verhoeff, and no leading 0 or 1.
func aadhaar(b []byte) bool {
	if b[0] < '2' {
		return false
	}
	c := byte(0)
	for i := range b {
		d := b[len(b)-1-i] - '0'
		for range i % 8 {
			d = "1576283094"[d] - '0'
		}
		c = verhoeff[c][d] - '0'
	}
	return c == 0
}

// verhoeff is the multiplication table of the dihedral group D5.
var verhoeff = [10]string{
	"0123456789", "1234067895", "2340178956", "3401289567", "4012395678",
	"5987604321", "6598710432", "7659821043", "8765932104", "9876543210",
}

// chineseID: GB 11643-1999: region, birth date, order, ISO 7064 MOD 11-2. b is 18 bytes, 17 digits first.
func chineseID(b []byte) bool {
	region, year, month, day := number(b[:2]), number(b[6:10]), number(b[10:12]), number(b[12:14])
	if region < 11 || region > 91 || year < 1900 || year > 2100 || month < 1 || month > 12 || day < 1 || day > 31 {
		return false
	}
	sum, w := 0, 1
	for i := 16; i >= 0; i-- {
		w = w * 2 % 11
		sum += int(b[i]-'0') * w
	}
	return "10X98765432"[sum%11] == upper(b[17])
}

func upper(c byte) byte {
	if isLower(c) {
		return c &^ 0x20
	}
	return c
}

// confirmFiscale sees ddLdd, the birth date of a codice fiscale.
func confirmFiscale(s *scan, _ *keyword, end int) {
	at := end - 11
	if at < 0 || end+5 > len(s.v) || isWord(s.at(at-1)) || isWord(s.at(end+5)) || !codiceFiscale(s.v[at:end+5]) {
		return
	}
	s.add(kNationalIT, at, end+5)
}

// codiceFiscale: Decreto Ministeriale 23 December 1976: six letters, year, month letter, day, place, check letter.
func codiceFiscale(b []byte) bool {
	for i, c := range b {
		digit := i == 6 || i == 7 || i == 9 || i == 10 || i >= 12 && i <= 14
		if digit && !isDigit(c) || !digit && !isUpper(c) {
			return false
		}
	}
	if day := number(b[9:11]); day < 1 || day > 31 && day < 41 || day > 71 {
		return false
	}
	sum := 0
	for i, c := range b[:15] {
		n := int(c - 'A')
		if isDigit(c) {
			n = int(c - '0')
		}
		if i%2 == 0 {
			n = [26]int{1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23}[n]
		}
		sum += n
	}
	return byte(sum%26)+'A' == b[15]
}

// ibanCountry: the SWIFT IBAN registry. digits: the account part has digits only.
type ibanCountry struct {
	code   string
	length int
	digits bool
}

var ibanCountries = func() map[[2]byte]ibanCountry {
	m := map[[2]byte]ibanCountry{}
	for _, c := range []ibanCountry{
		{"AD", 24, false}, {"AE", 23, true}, {"AL", 28, false}, {"AT", 20, true}, {"AZ", 28, false}, {"BA", 20, true}, {"BE", 16, true},
		{"BG", 22, false}, {"BH", 22, false}, {"BI", 27, true}, {"BR", 29, false}, {"BY", 28, false}, {"CH", 21, false}, {"CR", 22, true},
		{"CY", 28, false}, {"CZ", 24, true}, {"DE", 22, true}, {"DJ", 27, true}, {"DK", 18, true}, {"DO", 28, false}, {"EE", 20, true},
		{"EG", 29, true}, {"ES", 24, true}, {"FI", 18, true}, {"FK", 18, false}, {"FO", 18, true}, {"FR", 27, false}, {"GB", 22, false},
		{"GE", 22, false}, {"GI", 23, false}, {"GL", 18, true}, {"GR", 27, false}, {"GT", 28, false}, {"HN", 28, false}, {"HR", 21, true},
		{"HU", 28, true}, {"IE", 22, false}, {"IL", 23, true}, {"IQ", 23, false}, {"IS", 26, true}, {"IT", 27, false}, {"JO", 30, false},
		{"KW", 30, false}, {"KZ", 20, false}, {"LB", 28, false}, {"LC", 32, false}, {"LI", 21, false}, {"LT", 20, true}, {"LU", 20, false},
		{"LV", 21, false}, {"LY", 25, true}, {"MC", 27, false}, {"MD", 24, false}, {"ME", 22, true}, {"MK", 19, false}, {"MN", 20, true},
		{"MR", 27, true}, {"MT", 31, false}, {"MU", 30, false}, {"NI", 28, false}, {"NL", 18, false}, {"NO", 15, true}, {"OM", 23, false},
		{"PK", 24, false}, {"PL", 28, true}, {"PS", 29, false}, {"PT", 25, true}, {"QA", 29, false}, {"RO", 24, false}, {"RS", 22, true},
		{"RU", 33, false}, {"SA", 24, false}, {"SC", 31, false}, {"SD", 18, true}, {"SE", 24, true}, {"SI", 19, true}, {"SK", 24, true},
		{"SM", 27, false}, {"SO", 23, true}, {"ST", 25, true}, {"SV", 28, false}, {"TL", 23, true}, {"TN", 24, true}, {"TR", 26, false},
		{"UA", 29, false}, {"VA", 22, true}, {"VG", 24, false}, {"XK", 20, true}, {"YE", 30, false},
	} {
		m[[2]byte{c.code[0], c.code[1]}] = c
	}
	return m
}()

// iban looks for an IBAN whose first run of four digits begins at start: in one piece, or in groups of four. A place
// it was looked for before need not be tried again.
func (s *scan) iban(start int) bool {
	at := start
	for start-at < 34 && at > 0 && upperNum[s.v[at-1]] {
		at--
	}
	tried := s.ibanTried
	s.ibanTried = max(tried, at)
	if at <= tried {
		return false
	}
	if s.ibanAt(at) {
		return true
	}
	for range 8 {
		if at < 5 || s.v[at-1] != ' ' || at-5 <= tried {
			return false
		}
		for i := at - 5; i < at-1; i++ {
			if !upperNum[s.v[i]] {
				return false
			}
		}
		if at -= 5; s.ibanAt(at) {
			return true
		}
	}
	return false
}

func (s *scan) ibanAt(at int) bool {
	if at+15 > len(s.v) || !isUpper(s.v[at]) || !isUpper(s.v[at+1]) || !isDigit(s.v[at+2]) || !isDigit(s.v[at+3]) || isWord(s.at(at-1)) {
		return false
	}
	c, ok := ibanCountries[[2]byte{s.v[at], s.v[at+1]}]
	if !ok {
		return false
	}
	var b [34]byte
	n, i := 0, at
	for n < c.length {
		switch ch := s.at(i); {
		case upperNum[ch] && (isDigit(ch) || !c.digits || n < 2):
			b[n] = ch
			n++
		case ch == ' ' && n%4 == 0:
		default:
			return false
		}
		i++
	}
	if isWord(s.at(i)) {
		return false
	}
	// ISO 13616: the first four to the end, letters as two digits, modulo 97 is 1.
	rem := 0
	for k := range n {
		ch := b[(k+4)%n]
		if isDigit(ch) {
			rem = (rem*10 + int(ch-'0')) % 97
		} else {
			rem = (rem*100 + int(ch-'A') + 10) % 97
		}
	}
	if rem != 1 {
		return false
	}
	s.numEnd = max(s.numEnd, i)
	s.add(kIBAN, at, i)
	return true
}

// manyMails is the number of different addresses that make a text a list of people.
const manyMails = 5

// confirmMail counts different e-mail addresses; the finding spans the first five.
func confirmMail(s *scan, _ *keyword, end int) {
	if s.mailCount == manyMails || !alnum[s.at(end)] {
		return
	}
	at := end - 1
	for end-1-at < 64 && at > 0 && mailSet[s.v[at-1]] {
		at--
	}
	if at == end-1 {
		return
	}
	stop := s.run(end, domainSet, 254)
	for stop > end && !alnum[s.v[stop-1]] {
		stop--
	}
	dot := -1
	for i := end; i < stop; i++ {
		if s.v[i] == '.' {
			dot = i
		}
	}
	if dot < 0 || stop-dot < 3 || !letter(s.v[dot+1]) {
		return
	}
	h := uint64(14695981039346656037) // FNV-1a
	for _, c := range s.v[at:stop] {
		h = (h ^ uint64(lower(c))) * 1099511628211
	}
	if slices.Contains(s.mails[:s.mailCount], h) {
		return
	}
	if s.mailCount == 0 {
		s.mailStart = at
	}
	s.mails[s.mailCount] = h
	if s.mailCount++; s.mailCount == manyMails {
		s.add(kEmailMany, s.mailStart, stop)
	}
}

// domainSet: the bytes of a domain name (RFC 1035).
var domainSet = chars("a-zA-Z0-9.-")
