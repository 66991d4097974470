package notify

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// signedBy is what a receiver does with a webhook before it believes a byte of the body: the signature has to be of the bytes as
// they came, with the shared secret, and made a short while ago. After that it drops what it has had, by the body's id.
func signedBy(secret []byte, header string, body []byte, now time.Time) bool {
	var t, v1 string
	for part := range strings.SplitSeq(header, ",") {
		switch name, value, _ := strings.Cut(part, "="); name {
		case "t":
			t = value
		case "v1":
			v1 = value
		}
	}
	seconds, err := strconv.ParseInt(t, 10, 64)
	if err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > 5*time.Minute {
		return false
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(t + "."))
	mac.Write(body)
	got, err := hex.DecodeString(v1)
	return err == nil && hmac.Equal(got, mac.Sum(nil))
}

// A receiver checks the signature of a webhook.
func Example_verify() {
	secret := []byte("a random one, not this")
	header := "t=1782000000,v1=529c4010af0f3da2afa6d7759802ebe0ff43274a54c028bc74a552b3e295eaff" // r.Header.Get("Sallyport-Signature")
	body := []byte(`{"id":"ntf_5d41402abc4b2a76b9719d91","event":"approval","title":"billing-bot wants to run bank.transfer"}`)
	now := time.Unix(1782000030, 0)

	fmt.Println("as it came:", signedBy(secret, header, body, now))
	fmt.Println("an hour later:", signedBy(secret, header, body, now.Add(time.Hour)))
	fmt.Println("changed:", signedBy(secret, header, append(body, ' '), now))
	// Output:
	// as it came: true
	// an hour later: false
	// changed: false
}
