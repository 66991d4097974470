package screen

import "unicode/utf8"

// respell appends b to dst as it reads when digits and signs within words stand for letters, and letters that stand alone are joined to words.
func (d *Detector) respell(dst, b []byte) []byte {
	for i := 0; i < len(b); {
		if n := spelled(b[i:]); n > 0 && (i == 0 || ascii[b[i-1]] == ' ' && b[i-1] < utf8.RuneSelf) {
			dst = d.join(dst, b[i:i+n])
			i += n
			continue
		}
		end := i
		letters := false
		for end < len(b) && b[end] > ' ' {
			letters = letters || ascii[b[end]] >= 'a' || b[end] >= utf8.RuneSelf
			end++
		}
		if end == i {
			dst = append(dst, b[i])
			i++
			continue
		}
		for _, c := range b[i:end] {
			if f := leet(c); letters && c < utf8.RuneSelf && f != ascii[c] {
				c = f
			}
			dst = append(dst, c)
		}
		i = end
	}
	return dst
}

// spelled returns the length of letters at the beginning of b that stand alone, with a sign or a space between each and the next, or several between words;
// 0 for fewer than five.
func spelled(b []byte) int {
	n, end := 0, 0
	for i := 0; i < len(b); {
		if leet(b[i]) < 'a' || b[i] >= utf8.RuneSelf || i+1 < len(b) && (leet(b[i+1]) != ' ' && b[i+1] > ' ' || b[i+1] >= utf8.RuneSelf) {
			break
		}
		n++
		i++
		end = i
		for k := 0; i < len(b) && k < 4 && ascii[b[i]] == ' '; k++ {
			i++
		}
	}
	if n < 5 {
		return 0
	}
	return end
}

// join appends letters that stand alone as words. Where nothing parts the words, those that rules know do.
func (d *Detector) join(dst, b []byte) []byte {
	from, gap := len(dst), 0
	for _, c := range b {
		if f := leet(c); f != ' ' {
			if gap > 1 {
				dst = append(dst, ' ')
			}
			dst, gap = append(dst, f), 0
			continue
		}
		gap++
	}
	const longWord = 14
	if word := dst[from:]; len(word) > longWord {
		parted := true
		for _, c := range word {
			parted = parted && c != ' '
		}
		if parted {
			return d.part(dst, from)
		}
	}
	return dst
}

// part parts what stands in dst from a place on into the words that rules know, the longest first.
func (d *Detector) part(dst []byte, from int) []byte {
	end := len(dst)
	dst = append(dst, ' ')
	for i := from; i < end; {
		n := 0
		h := uint32(offset32)
		for k := i; k < end && k-i < maxWord; k++ {
			h = (h ^ uint32(ascii[dst[k]])) * prime32
			if k-i >= 2 && d.rules.maybe(h) && d.rules.find(h) != nil {
				n = k - i + 1
			}
		}
		if n == 0 {
			dst = append(dst, dst[i])
			i++
			continue
		}
		dst = append(dst, ' ')
		dst = append(dst, dst[i:i+n]...)
		dst = append(dst, ' ')
		i += n
	}
	return dst
}
